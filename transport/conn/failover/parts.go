package failover

// MaxParts is the most parts of a message.
const MaxParts = 32

// Parts says where the parts of a message are that the sender has posted.
type Parts struct {
	Lanes   [MaxParts]uint8 // index of the lane that carried each part last
	Last    uint8           // index of the last part
	Lost    uint32          // a bit for each part that is to be sent again
	charged uint32          // a bit for each part that was sent again, and has used up credit
}

// Begin makes p the parts of a new message, of which there are n.
func (p *Parts) Begin(n int) { p.Last, p.Lost, p.charged = uint8(n-1), 0, 0 }

// Settle settles the parts that went last over a lane, once the lane is drained at both ends and the sender has the receiver's
// Report about it. undelivered has a bit for each part of the message that was not acknowledged. named says whether the Report
// names the message's receive, and arrived has a bit for each part that it names; a receive that was granted and is not named is
// complete. Settle returns the parts that have been delivered, and marks as lost those that have not arrived. It returns false if
// a part was acknowledged and has not arrived: it cannot be sent again, because the program may have reused its memory.
func (p *Parts) Settle(lane uint8, undelivered uint32, named bool, arrived uint32) (delivered uint32, ok bool) {
	if !named {
		arrived = 1<<MaxParts - 1
	}
	over := p.Over(lane)
	if over&^undelivered&^arrived != 0 {
		return 0, false
	}
	p.Lost |= over & undelivered &^ arrived
	return over & undelivered & arrived, true
}

// Over returns a bit for each part that went last over a lane.
func (p *Parts) Over(lane uint8) (parts uint32) {
	for k := range int(p.Last) + 1 {
		if p.Lanes[k] == lane {
			parts |= 1 << k
		}
	}
	return parts
}

// Credit is how many parts the sender may send again, over all messages.
type Credit struct{ left int }

// Add adds the credit that a Report gives.
func (c *Credit) Add(parts int) { c.left += parts }

// MaySend reports whether part k of a message, which is lost, may be sent again. A part uses up credit once and keeps it until it
// arrives, however often it is lost, because the receiver counts parts that arrive.
func (c *Credit) MaySend(p *Parts, k int) bool { return p.charged&(1<<k) != 0 || c.left > 0 }

// Sent notes that part k of a message was sent again over a lane. MaySend must have returned true.
func (c *Credit) Sent(p *Parts, k int, lane uint8) {
	bit := uint32(1) << k
	if p.charged&bit == 0 {
		c.left--
	}
	p.Lanes[k], p.Lost, p.charged = lane, p.Lost&^bit, p.charged|bit
}

// Allowance is the receiver's count of the parts that the sender may send again, for which receives are posted.
type Allowance struct{ limit, left int }

// NewAllowance returns an allowance for that many parts at a time. The sender has no credit before the first Renew.
func NewAllowance(limit int) Allowance { return Allowance{limit: limit} }

// Renew returns the credit to add at the sender, for parts that have arrived since the last Renew.
func (a *Allowance) Renew() (more int) {
	more = a.limit - a.left
	a.left = a.limit
	return more
}

// Use notes that a part which was sent again has arrived. ok is false if the sender had no credit for it. due says that half of the
// credit is used, so that the caller must call Renew and tell the sender.
func (a *Allowance) Use() (ok, due bool) {
	if a.left == 0 {
		return false, false
	}
	a.left--
	return true, a.left == a.limit/2
}
