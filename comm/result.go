package comm

import (
	"errors"

	"ncclmesh/transport/fault"
)

// A Result is the kind of an error, or success. The numbers are those of the C library; 0 to 6 are also those of MSCCL++'s C
// interface of 2023, and of NCCL.
type Result int

// The results. ResultUnhandledCUDAError exists for the sake of its number: the library calls no CUDA function.
const (
	ResultSuccess            Result = 0
	ResultUnhandledCUDAError Result = 1
	ResultSystemError        Result = 2
	ResultInternalError      Result = 3
	ResultInvalidArgument    Result = 4
	ResultInvalidUsage       Result = 5
	ResultRemoteError        Result = 6
	ResultInProgress         Result = 7

	// NumResults is the number of results.
	NumResults = 8
)

var texts = [NumResults]string{
	"success",
	"a CUDA call failed",
	"a system call, a driver or an adapter of this node failed",
	"the library found an error of its own: please report it",
	"an argument is not valid",
	"the call is not allowed in this state, or a setting is not accepted",
	"another rank, or every path to it, has failed",
	"the time-out has passed: call again",
}

func (r Result) String() string {
	if r < 0 || int(r) >= len(texts) {
		return "unknown result"
	}
	return texts[r]
}

var (
	// ErrArgument: an argument is wrong in any state.
	ErrArgument = errors.New("invalid argument")
	// ErrTimeout: the time-out of a call has passed, and nothing has failed: the caller may call again.
	ErrTimeout = errors.New("time-out")
)

// ResultOf returns the result for an error.
func ResultOf(err error) Result {
	switch {
	case err == nil:
		return ResultSuccess
	case errors.Is(err, ErrTimeout):
		return ResultInProgress
	case errors.Is(err, ErrArgument):
		return ResultInvalidArgument
	case errors.Is(err, fault.ErrUsage):
		return ResultInvalidUsage
	case errors.Is(err, fault.ErrPeer):
		return ResultRemoteError
	case errors.Is(err, fault.ErrInternal):
		return ResultInternalError
	}
	return ResultSystemError // a system call, the driver, the hardware
}
