package fleet

import (
	"context"
	"io"
	"sync"
)

// reply is what one host has said.
type reply[T any] struct {
	Host    string
	Hello   Hello
	Answers []T   // those that came before the error too
	Err     error // a *HostError, or nil
}

// ask asks all hosts at once, and returns their replies in the same order when the last has
// answered or failed.
func ask[T any](ctx context.Context, f *Fleet, hosts []string, r Request) []reply[T] {
	replies := make([]reply[T], len(hosts))
	var wg sync.WaitGroup
	for i, host := range hosts {
		wg.Go(func() {
			c := f.Start(ctx, host, r)
			defer c.Close()
			reply := &replies[i]
			reply.Host = host
			for reply.Err == nil {
				var a T
				err := c.Next(&a)
				if err == io.EOF { // a HostError may wrap one
					break
				}
				if reply.Err = err; err == nil {
					reply.Answers = append(reply.Answers, a)
				}
			}
			reply.Hello = c.Hello()
		})
	}
	wg.Wait()
	return replies
}
