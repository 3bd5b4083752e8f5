package ncclnet

import (
	"errors"

	"ncclmesh/transport/fault"
)

// A Result is NCCL's ncclResult_t.
type Result int32

// The results that this plugin returns. It never returns ncclInProgress, because NCCL's proxy treats that as a failure.
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
	// errArgument: an argument of the call is wrong in any state.
	errArgument = errors.New("invalid argument")
	// errUsage: the call is not allowed in the current state, or a setting is not acceptable.
	errUsage = errors.New("invalid usage")
)

// resultOf returns the result for an error. No other function converts errors to results.
func resultOf(err error) Result {
	switch {
	case err == nil:
		return ncclSuccess
	case errors.Is(err, errArgument):
		// NCCL, or a library loaded as NCCL, passed a value that this plugin never returned.
		return ncclInvalidArgument
	case errors.Is(err, errUsage), errors.Is(err, fault.ErrUsage):
		// A setting that cannot be parsed, or a call out of order: the user or the caller can correct it.
		return ncclInvalidUsage
	case errors.Is(err, fault.ErrPeer):
		// The problem is on the other node. Frameworks restart after this result.
		return ncclRemoteError
	case errors.Is(err, fault.ErrInternal):
		// A bug in this plugin.
		return ncclInternalError
	}
	// Every other error is of this machine: a system call, the driver, the hardware.
	return ncclSystemError
}
