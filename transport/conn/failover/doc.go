// Package failover decides how a connection goes on when lanes of it fail: when a side stops its end of a lane, what it tells
// the peer and when, which grants and parts are sent again, and when the lane's index is free. It is the protocol alone: it has
// no locks, goroutines, time or lanes, and sends nothing. Package conn tells it what happens, and does what it returns. Its
// types are not safe for use by several goroutines at once. They allocate only when they are made.
//
// # The protocol
//
// A sender S and a receiver R have some lanes, and a session that keeps the order of its messages. R grants receives by writing
// into slots of a ring at S. S sends the parts of a message once the grant of its receive is in the ring. R counts the parts
// that arrive, and the program has a buffer back once all parts are there. A lane keeps the order of what it carries one way and
// may fail at any time. What is on its way then arrives, or does not, until the end where it would arrive is drained. Each side
// notices a failure at its own time.
//
//  1. A side that has a reason not to use a lane, or the peer's LaneDown, uses the lane for nothing new, stops its end, drains
//     it, and then sends LaneDown: [Lanes].
//  2. R, once it has drained its end and has S's LaneDown, sends a Report: the receives that are not complete, and which of
//     their parts have arrived. It then repeats the grants that went last over that lane and may not have landed, and no
//     others: [Grants.Settle].
//  3. Grants are repeated in order and before new ones. While a repeated grant may still land, no later receive is granted in
//     its slot: [Grants.MayGrant]. A grant moves to another lane only once the lane that carried it is settled: [Grants.MayMove].
//  4. S, once it has drained its end and has R's LaneDown and Report, settles the parts that went last over that lane and were
//     not acknowledged. A part is delivered if the Report does not name its receive or has the part. Otherwise it is sent again
//     over another lane. A part that was acknowledged over that very lane must have arrived: [Parts.Settle].
//  5. Parts that are sent again are marked. R gives S credit for them with each Report, and when half of the credit is used:
//     [Credit], [Allowance].
//  6. R closes a connection cleanly only if no receive is outstanding. S then needs no Report: what it sent has arrived.
//  7. The index of a lane is free for a new lane when both sides have settled the old one. A side that has no lane waits for
//     one.
//
// # The search
//
// The tests run a sender's and a receiver's half of this package over a model of the network, in every order in which messages
// of the session, arrivals, acknowledgements and failures may come. They check:
//
//   - no late grant overwrites one that S still needs;
//   - no part arrives in a buffer that was given back, and each is counted once, for its own receive;
//   - no send is done before its data is at R, or while a lane may read its buffer;
//   - R has posted receives for all parts that are sent again;
//   - no index is used again while anything of its old lane is on its way;
//   - as long as a lane is left, all messages get through, and both sides are done with every lane that failed, even if all
//     that may be lost is lost.
//
// The tests also break each rule, one at a time, and the search must find what that breaks. With -v they print the shortest
// history that leads there. With -wide they search spaces of millions of states.
//
// The model leaves out what the plain writes of a part touch before the part's end arrives, receives of more than one buffer,
// sizes, messages that are sent before their grant, and set-up. Of keys it has only that grants are repeated because of them.
package failover
