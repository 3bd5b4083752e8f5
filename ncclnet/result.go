package ncclnet

import (
	"errors"

	"ncclmesh/transport/fault"
)

// A Result is NCCL's ncclResult_t.
type Result int32

// Of NCCL's results these are returned. ncclInProgress never is: NCCL's proxy
// takes it for a failure.
const (
	ncclSuccess         Result = 0
	ncclSystemError     Result = 2
	ncclInternalError   Result = 3
	ncclInvalidArgument Result = 4
	ncclInvalidUsage    Result = 5
	ncclRemoteError     Result = 6
)

func (r Result) String() string {
	switch r {
	case ncclSuccess:
		return "ncclSuccess"
	case ncclSystemError:
		return "ncclSystemError"
	case ncclInternalError:
		return "ncclInternalError"
	case ncclInvalidArgument:
		return "ncclInvalidArgument"
	case ncclInvalidUsage:
		return "ncclInvalidUsage"
	case ncclRemoteError:
		return "ncclRemoteError"
	}
	return "unknown result"
}

var (
	// errArgument: an argument of the call is wrong, whatever came before.
	errArgument = errors.New("invalid argument")
	// errUsage: the call or a setting is not acceptable here and now.
	errUsage = errors.New("invalid usage")
)

// resultOf is the one place where errors become results.
func resultOf(err error) Result {
	switch {
	case err == nil:
		return ncclSuccess
	case errors.Is(err, errArgument):
		// NCCL, or what was loaded as NCCL, passed something we never gave it.
		return ncclInvalidArgument
	case errors.Is(err, errUsage), errors.Is(err, fault.ErrUsage):
		// A setting that does not parse, a call out of order: the user or the
		// caller can change it.
		return ncclInvalidUsage
	case errors.Is(err, fault.ErrPeer):
		// The other node is the one to look at; frameworks restart on this.
		return ncclRemoteError
	case errors.Is(err, fault.ErrInternal):
		// A promise of our own was broken: a bug.
		return ncclInternalError
	}
	// Everything else is this machine: a system call, the driver, the hardware.
	return ncclSystemError
}
