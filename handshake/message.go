package handshake

import "fmt"

// Type is the type of a frame.
type Type uint8

// Types of frames. A bare acknowledgement has no body and no number of its own.
const (
	TypeAck            Type = 0
	TypeOpen           Type = 1
	TypeAccept         Type = 2
	TypeConnected      Type = 3
	TypeValidated      Type = 4
	TypePorts          Type = 5
	TypeRefuse         Type = 6
	TypeLaneDown       Type = 7
	TypeBye            Type = 8
	TypeReport         Type = 9
	TypeMapQuery       Type = 10
	TypeMap            Type = 11
	TypeCircuitOpen    Type = 12
	TypeCircuitDeliver Type = 13
	TypeCircuitOpened  Type = 14
	TypeCircuitClose   Type = 15
	TypeAsk            Type = 16
	TypeCircuitStalled Type = 17
	TypeWant           Type = 18
	TypeWindow         Type = 19
	TypeWindowEnd      Type = 20
)

// types are the names of the types, and their messages.
var types = [...]struct {
	name string
	make func() Message
}{
	TypeAck:            {"Ack", nil}, // a frame without a body
	TypeOpen:           {"Open", empty[Open]},
	TypeAccept:         {"Accept", empty[Accept]},
	TypeConnected:      {"Connected", empty[Connected]},
	TypeValidated:      {"Validated", empty[Validated]},
	TypePorts:          {"Ports", empty[Ports]},
	TypeRefuse:         {"Refuse", empty[Refuse]},
	TypeLaneDown:       {"LaneDown", empty[LaneDown]},
	TypeBye:            {"Bye", empty[Bye]},
	TypeReport:         {"Report", empty[Report]},
	TypeMapQuery:       {"MapQuery", empty[MapQuery]},
	TypeMap:            {"Map", empty[Map]},
	TypeCircuitOpen:    {"CircuitOpen", empty[CircuitOpen]},
	TypeCircuitDeliver: {"CircuitDeliver", empty[CircuitDeliver]},
	TypeCircuitOpened:  {"CircuitOpened", empty[CircuitOpened]},
	TypeCircuitClose:   {"CircuitClose", empty[CircuitClose]},
	TypeAsk:            {"Ask", empty[Ask]},
	TypeCircuitStalled: {"CircuitStalled", empty[CircuitStalled]},
	TypeWant:           {"Want", empty[Want]},
	TypeWindow:         {"Window", empty[Window]},
	TypeWindowEnd:      {"WindowEnd", empty[WindowEnd]},
}

// empty returns a message without values.
func empty[M any, P interface {
	*M
	Message
}]() Message {
	return P(new(M))
}

func (t Type) String() string {
	if int(t) < len(types) {
		return types[t].name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Message is what a session carries: a pointer to one of the types of this file, or of report.go and relay.go.
// Connection numbers are chosen by the side that dialled the session and are unique within it.
type Message interface {
	Type() Type
	// fields writes or reads the body.
	fields(c *codec)
}

// AppendMessage appends the body of a frame. It fails when a value does not fit the wire.
func AppendMessage(b []byte, m Message) ([]byte, error) {
	c := codec{b: b}
	m.fields(&c)
	return c.done(m.Type().String())
}

// DecodeMessage reads the body of a frame of type t.
func DecodeMessage(t Type, body []byte) (Message, error) {
	if int(t) >= len(types) || types[t].make == nil {
		return nil, fmt.Errorf("message type %d is unknown", uint8(t))
	}
	m := types[t].make()
	c := codec{b: body, reads: true}
	m.fields(&c)
	if _, err := c.done(t.String()); err != nil {
		return nil, err
	}
	return m, nil
}

// Open asks for a connection, or for more lanes of one: the sender's half of every lane. Of those that join, and of
// Accept, Connected and Validated about them, Epoch is the number of the joining, from 1, which is that of the lanes too.
type Open struct {
	Conn    uint32
	Epoch   uint32
	Listen  uint32
	Proof   [32]byte // see Proof
	Base    uint64   // address of the sender's grant memory
	Domains []Domain
	Lanes   []Lane
}

func (*Open) Type() Type { return TypeOpen }

func (m *Open) fields(c *codec) {
	c.u32(&m.Conn)
	c.u32(&m.Epoch)
	c.u32(&m.Listen)
	c.bytes(m.Proof[:])
	c.u64(&m.Base)
	list(c, "domains", &m.Domains, MaxDomains, c.domain)
	c.lanes(&m.Lanes)
}

// Accept answers Open: the receiver's half of the lanes it takes.
type Accept struct {
	Conn    uint32
	Epoch   uint32
	Base    uint64
	Domains []Domain
	Lanes   []Lane
}

func (*Accept) Type() Type { return TypeAccept }

func (m *Accept) fields(c *codec) {
	c.u32(&m.Conn)
	c.u32(&m.Epoch)
	c.u64(&m.Base)
	list(c, "domains", &m.Domains, MaxDomains, c.domain)
	c.lanes(&m.Lanes)
}

// Connected says which of the sender's lanes can send (IBV_QPS_RTS).
type Connected struct {
	Conn  uint32
	Epoch uint32
	Lanes uint32 // a bit for each lane
}

func (*Connected) Type() Type { return TypeConnected }

func (m *Connected) fields(c *codec) {
	c.u32(&m.Conn)
	c.u32(&m.Epoch)
	c.u32(&m.Lanes)
}

// Validated says on which lanes this side's validation packet was delivered and the peer's arrived, and why the others failed.
type Validated struct {
	Conn   uint32
	Epoch  uint32
	Lanes  uint32
	Failed []LaneFailure
}

// LaneFailure is why one lane could not be used.
type LaneFailure struct {
	Index  uint8
	Cause  Cause
	Reason string
}

// Cause says against what the failure of a lane is evidence.
type Cause uint8

const (
	CausePath Cause = 0 // the path between the two ports
	CauseNode Cause = 1 // the node that tells of it: it has run out of something, or strangers crowd its port
)

func (*Validated) Type() Type { return TypeValidated }

func (m *Validated) fields(c *codec) {
	c.u32(&m.Conn)
	c.u32(&m.Epoch)
	c.u32(&m.Lanes)
	list(c, "failed lanes", &m.Failed, MaxLanes, c.laneFailure)
}

func (c *codec) laneFailure(f *LaneFailure) {
	c.atMost("lane index", &f.Index, MaxLanes-1)
	c.atMost("cause", (*uint8)(&f.Cause), uint8(CauseNode))
	c.text("reason", &f.Reason, MaxReason)
}

// Ports tells the peer that its description of the sender's ports has changed.
type Ports struct {
	Ports []Port
}

func (*Ports) Type() Type { return TypePorts }

func (m *Ports) fields(c *codec) {
	c.ports(&m.Ports)
}

// Codes of a Refuse. One that a process does not know is RefuseFailed to it.
const (
	RefuseFailed uint8 = 0 // the connection failed
	RefuseEnding uint8 = 1 // the process ends, and gives up a connection that was being set up
)

// Refuse ends a connection that failed, during set-up or later.
type Refuse struct {
	Conn uint32
	Code uint8
	Text string // for people
	Loss string // as in Bye
}

func (*Refuse) Type() Type { return TypeRefuse }

func (m *Refuse) fields(c *codec) {
	c.u32(&m.Conn)
	c.u8(&m.Code)
	c.text("text", &m.Text, MaxText)
	c.text("loss", &m.Loss, MaxText)
}

// LaneDown says that a lane carries nothing any more: its sender's half has come to rest.
type LaneDown struct {
	Conn   uint32
	Lane   uint8
	Epoch  uint32
	Better bool // nothing is wrong with it: there is a better one
	Reason string
}

func (*LaneDown) Type() Type { return TypeLaneDown }

func (m *LaneDown) fields(c *codec) {
	c.u32(&m.Conn)
	c.atMost("lane index", &m.Lane, MaxLanes-1)
	c.u32(&m.Epoch)
	c.flag("better", &m.Better)
	c.text("reason", &m.Reason, MaxReason)
}

// Bye is the orderly end of one connection; of the session, when Conn is 0.
type Bye struct {
	Conn uint32
	Loss string // for people: the failure because of which the process closes its connections; "" if there was none
}

func (*Bye) Type() Type { return TypeBye }

func (m *Bye) fields(c *codec) {
	c.u32(&m.Conn)
	c.text("loss", &m.Loss, MaxText)
}

// Want says that a sender waits for a grant, or for word of its eager messages, which a receiver whose program does not
// look at its receives would not send.
type Want struct {
	Conn  uint32
	Eager uint64 // number of its last eager message
}

func (*Want) Type() Type { return TypeWant }

func (m *Want) fields(c *codec) {
	c.u32(&m.Conn)
	c.u64(&m.Eager)
}
