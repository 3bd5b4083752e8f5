// Package failover has no code, only tests: the protocol by which a connection outlives
// its lanes, as a state machine of both halves, searched through every order in which
// messages, landings, completions and failures may come. There is no time in it, no
// goroutine and no lane of any kind.
//
// # What is modelled
//
// A sender S and a receiver R have some lanes and a control channel. R grants receives
// 1, 2, … by writing into slots of a ring at S; S sends a message, in parts over lanes of
// its choice, once the slot of its receive holds that sequence, and so do the slots of all
// receives before it that have no message: in any order, as tags may have it. R counts parts by
// slot, and gives a buffer back once it has all of them. What lands is there before it is
// polled, and an acknowledgement may come before or after that. A lane keeps the order of
// what it carries one way, and may fail at any time; then what is on the way over it
// lands, or does not, until the end where it would land has been drained. The two sides
// notice a failure each at its own time.
//
//  1. A side that has evidence against a lane, or the peer's LaneDown, uses it for nothing
//     new, takes its end down, drains it, and then sends LaneDown.
//  2. R, once it has drained its end and has S's LaneDown, sends a Report: the outstanding
//     receives, and which parts of them have come. Then it may grant again what it granted
//     last over that lane and of which no part has come; no grant that went over another.
//  3. Grants again go in order and before new ones. While one may still land, its slot is
//     granted to no later receive: until its completion has come, or 2 for its lane.
//  4. S, once it has drained its end and has the Report, settles the parts that went last
//     over that lane and were not acknowledged: done where the Report does not name the
//     receive or has the part, else sent again over another lane. A part that was
//     acknowledged over that very lane must have come.
//  5. Parts sent again are marked; R allows so many at a time, with each Report and when
//     half of them have come. The leave that a part has got stays with it until it comes,
//     however often it is lost.
//  6. The connection ends when a side has no lane left and none is to come back. A lane
//     may come back when both sides have done with it; then both use it at once.
//
// # What is shown
//
// No late grant hides one that S has not used; nothing lands in a buffer that was given
// back; each part is counted once, for its own receive; no send is done before its data
// is at R; R has posted receives for all that is sent again; and as long as a lane is
// left, all messages get through and both sides have done with every lane that failed,
// even if all that may be lost is lost.
//
// Each rule is also broken, one mistake at a time, and the search must find by what that
// shows. With -v the tests print the shortest way there, step by step; with -wide they
// search spaces of millions of states too.
//
// # Where it is in the product
//
// S is conn.Sender, R conn.Receiver: the ring is lane.Grant's, what a part says of
// itself lane.Imm, polling is Arrived, an acknowledgement Delivered. Ends, LaneDown and
// draining are package bundle's. Left out are what a part's plain writes may touch before
// its end comes, several buffers in a receive, sizes, keys, and set-up.
package failover
