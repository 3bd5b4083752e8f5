package handshake

import "fmt"

// Type is the type of a frame.
type Type uint8

// Types of frames. A bare acknowledgement has no body and no number of its own.
const (
	TypeAck       Type = 0
	TypeOpen      Type = 1
	TypeAccept    Type = 2
	TypeConnected Type = 3
	TypeProved    Type = 4
	TypePorts     Type = 5
	TypeRefuse    Type = 6
	TypeLaneDown  Type = 7
	TypeBye       Type = 8
	TypeReport    Type = 9
	TypeAskMap    Type = 10
	TypeMap       Type = 11
	TypeCarry     Type = 12
	TypeArrive    Type = 13
	TypeCarried   Type = 14
	TypeDrop      Type = 15
	TypeAsk       Type = 16
	TypeSilent    Type = 17
	TypeWant      Type = 18
	TypeWindow    Type = 19
	TypeWindowEnd Type = 20
)

var typeNames = [...]string{"Ack", "Open", "Accept", "Connected", "Proved", "Ports", "Refuse", "LaneDown", "Bye", "Report", "AskMap", "Map", "Carry", "Arrive", "Carried", "Drop", "Ask", "Silent", "Want", "Window", "WindowEnd"}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Message is what a session carries: a pointer to one of the types of this file, or of report.go and relay.go.
// Connection numbers are chosen by the side that dialled the session and are unique within it.
type Message interface {
	Type() Type
	// AppendTo appends the body to b. It fails when a value does not fit the wire.
	AppendTo(b []byte) ([]byte, error)
	decode(r *reader)
}

// DecodeMessage reads the body of a frame of type t.
func DecodeMessage(t Type, body []byte) (Message, error) {
	var m Message
	switch t {
	case TypeOpen:
		m = new(Open)
	case TypeAccept:
		m = new(Accept)
	case TypeConnected:
		m = new(Connected)
	case TypeProved:
		m = new(Proved)
	case TypePorts:
		m = new(Ports)
	case TypeRefuse:
		m = new(Refuse)
	case TypeLaneDown:
		m = new(LaneDown)
	case TypeBye:
		m = new(Bye)
	case TypeReport:
		m = new(Report)
	case TypeAskMap:
		m = new(AskMap)
	case TypeMap:
		m = new(Map)
	case TypeCarry:
		m = new(Carry)
	case TypeArrive:
		m = new(Arrive)
	case TypeCarried:
		m = new(Carried)
	case TypeDrop:
		m = new(Drop)
	case TypeAsk:
		m = new(Ask)
	case TypeSilent:
		m = new(Silent)
	case TypeWant:
		m = new(Want)
	case TypeWindow:
		m = new(Window)
	case TypeWindowEnd:
		m = new(WindowEnd)
	default:
		return nil, fmt.Errorf("message type %d is unknown", uint8(t))
	}
	r := reader{b: body}
	m.decode(&r)
	if err := r.done(t.String()); err != nil {
		return nil, err
	}
	return m, nil
}

// Open asks for a connection, or for more lanes of one: the sender's half of every lane. Of those that join, and of
// Accept, Connected and Proved about them, Epoch is the number of the joining, from 1, which is that of the lanes too.
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

func (m *Open) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u32(m.Epoch)
	w.u32(m.Listen)
	w.bytes(m.Proof[:])
	w.u64(m.Base)
	w.domains(m.Domains)
	w.lanes(m.Lanes)
	return w.done("Open")
}

func (m *Open) decode(r *reader) {
	*m = Open{Conn: r.u32(), Epoch: r.u32(), Listen: r.u32(), Proof: r.sum(), Base: r.u64(), Domains: r.domains(), Lanes: r.lanes()}
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

func (m *Accept) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u32(m.Epoch)
	w.u64(m.Base)
	w.domains(m.Domains)
	w.lanes(m.Lanes)
	return w.done("Accept")
}

func (m *Accept) decode(r *reader) {
	*m = Accept{Conn: r.u32(), Epoch: r.u32(), Base: r.u64(), Domains: r.domains(), Lanes: r.lanes()}
}

// Connected says which of the sender's lanes can send (IBV_QPS_RTS).
type Connected struct {
	Conn  uint32
	Epoch uint32
	Lanes uint32 // a bit for each lane
}

func (*Connected) Type() Type { return TypeConnected }

func (m *Connected) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u32(m.Epoch)
	w.u32(m.Lanes)
	return w.done("Connected")
}

func (m *Connected) decode(r *reader) { *m = Connected{Conn: r.u32(), Epoch: r.u32(), Lanes: r.u32()} }

// Proved says on which lanes the proof write completed and the peer's token arrived, and why the others failed.
type Proved struct {
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

func (*Proved) Type() Type { return TypeProved }

func (m *Proved) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u32(m.Epoch)
	w.u32(m.Lanes)
	w.count("failed lanes", len(m.Failed), MaxLanes)
	for _, f := range m.Failed {
		w.atMost("lane index", f.Index, MaxLanes-1)
		w.atMost("cause", uint8(f.Cause), uint8(CauseNode))
		w.text(f.Reason, MaxReason)
	}
	return w.done("Proved")
}

func (m *Proved) decode(r *reader) {
	*m = Proved{Conn: r.u32(), Epoch: r.u32(), Lanes: r.u32()}
	for range r.atMost("number of failed lanes", MaxLanes) {
		f := LaneFailure{Index: r.atMost("lane index", MaxLanes-1), Cause: Cause(r.atMost("cause", uint8(CauseNode))), Reason: r.text("reason", MaxReason)}
		if r.err != nil {
			return
		}
		m.Failed = append(m.Failed, f)
	}
}

// Ports tells the peer that its description of the sender's ports has changed.
type Ports struct {
	Ports []Port
}

func (*Ports) Type() Type { return TypePorts }

func (m *Ports) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.ports(m.Ports)
	return w.done("Ports")
}

func (m *Ports) decode(r *reader) { *m = Ports{Ports: r.ports()} }

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

func (m *Refuse) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u8(m.Code)
	w.text(m.Text, MaxText)
	w.text(m.Loss, MaxText)
	return w.done("Refuse")
}

func (m *Refuse) decode(r *reader) {
	*m = Refuse{Conn: r.u32(), Code: r.u8(), Text: r.text("text", MaxText), Loss: r.text("loss", MaxText)}
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

func (m *LaneDown) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.atMost("lane index", m.Lane, MaxLanes-1)
	w.u32(m.Epoch)
	w.flag(m.Better)
	w.text(m.Reason, MaxReason)
	return w.done("LaneDown")
}

func (m *LaneDown) decode(r *reader) {
	*m = LaneDown{Conn: r.u32(), Lane: r.atMost("lane index", MaxLanes-1), Epoch: r.u32(), Better: r.flag("better"), Reason: r.text("reason", MaxReason)}
}

// Bye is the orderly end of one connection; of the session, when Conn is 0.
type Bye struct {
	Conn uint32
	Loss string // for people: the failure because of which the process closes its connections; "" if there was none
}

func (*Bye) Type() Type { return TypeBye }

func (m *Bye) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.text(m.Loss, MaxText)
	return w.done("Bye")
}

func (m *Bye) decode(r *reader) { *m = Bye{Conn: r.u32(), Loss: r.text("loss", MaxText)} }

// Want says that a sender waits for a grant, or for word of its eager messages, which a receiver whose program does not
// look at its receives would not send.
type Want struct {
	Conn  uint32
	Eager uint64 // number of its last eager message
}

func (*Want) Type() Type { return TypeWant }

func (m *Want) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u64(m.Eager)
	return w.done("Want")
}

func (m *Want) decode(r *reader) { *m = Want{Conn: r.u32(), Eager: r.u64()} }
