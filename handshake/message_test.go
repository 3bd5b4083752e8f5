package handshake

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testLanes() []Lane {
	return []Lane{
		{Index: 0, Port: 1, PeerPort: 2, QPN: 0xabcdef, PSN: 0x123456, Addr: netip.AddrFrom16(fill(0x30)), GIDIndex: 3, LID: 0x0405, MTU: 5, MaxMsg: 1 << 30, Kind: LaneVerbs, Token: 0x1112131415161718, ECE: ECE{Vendor: 0x15b3, Options: 0x10000005}, Through: "b"},
		{Index: 31, Port: 4, PeerPort: 5, Addr: netip.IPv6Unspecified(), Kind: LaneTCP, Token: 0x2122232425262728, TCPPort: 0xbeef, Check: true},
	}
}

const goldenLane = "00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 00 000015b3 10000005 0001 62"

const goldenRing = "0000000000000001 00000002 00000003"

// goldenID is an id that fill makes.
func goldenID(first byte) string {
	id := fill(first)
	return hex.EncodeToString(id[:])
}

const goldenLanes = "02" + goldenLane + `
	1f 04 05 00000000 00000000 00000000000000000000000000000000 0000 0000 00 00000000 02 2122232425262728 beef 01 00000000 00000000 0000`

func messages() []struct {
	m      Message
	golden string
} {
	return []struct {
		m      Message
		golden string
	}{
		{&Open{Conn: 1, Epoch: 5, Listen: 2, Proof: fill32(0x40), Base: 0x5152535455565758, Domains: []Domain{{Port: 1, Kind: LaneVerbs, RKey: 0x61626364}, {Port: 2, Kind: LaneCircuit, RKey: 7}}, Lanes: testLanes()},
			"00000001 00000005 00000002 404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f 5152535455565758 02 01 01 61626364 02 03 00000007" + goldenLanes},
		{&Accept{Conn: 1, Epoch: 6, Base: 3, Domains: []Domain{{Port: 9, Kind: LaneTCP, RKey: 8}}, Lanes: testLanes()},
			"00000001 00000006 0000000000000003 01 09 02 00000008" + goldenLanes},
		{&Connected{Conn: 1, Epoch: 7, Lanes: 0x80000001}, "00000001 00000007 80000001"},
		{&Validated{Conn: 1, Epoch: 8, Lanes: 1, Failed: []LaneFailure{{Index: 31, Reason: "no route"}, {Index: 0, Cause: CauseNode, Reason: "x"}}},
			"00000001 00000008 00000001 02 1f 00 0008 6e6f20726f757465 00 01 0001 78"},
		{&Ports{Ports: []Port{{Index: 2, Device: "d", Num: 1, Netdev: "n", LinkLayer: 2, LID: 3, MTU: 5, NetdevMTU: 9000, MaxMsgSize: 1 << 30, SpeedMbps: 1000}}},
			"01 02 000164 01 00016e 02 0003 05 00002328 40000000 000003e8 00"},
		{&Refuse{Conn: 1, Code: 4, Text: "größer"}, "00000001 04 0008 6772c3b6c39f6572 0000"},
		{&Refuse{Conn: 1, Text: "nd", Loss: "nc"}, "00000001 00 0002 6e64 0002 6e63"},
		{&LaneDown{Conn: 1, Lane: 2, Epoch: 3, Better: true, Reason: "x"}, "00000001 02 00000003 01 0001 78"},
		{&Bye{Conn: 6}, "00000006 0000"},
		{&Bye{Conn: 6, Loss: "nc"}, "00000006 0002 6e63"},
		{&Want{Conn: 6, Eager: 7}, "00000006 0000000000000007"},
		{&Window{Conn: 6, ID: 7, Kind: 1, Base: 0x7f0000001000, Size: 1 << 32, RKeys: []uint32{8, 0, 9}}, "00000006 00000007 01 00007f0000001000 0000000100000000 03 00000008 00000000 00000009"},
		{&WindowEnd{Conn: 6, ID: 7}, "00000006 00000007"},
		{&Report{Conn: 1, Lane: 31, Epoch: 2, Again: 256, Eager: 7, Ahead: 5, Receives: []Received{{Seq: 3, Parts: []uint32{5}}, {Seq: 1 << 32, Parts: []uint32{0, 1<<32 - 1}}}},
			"00000001 1f 00000002 0100 0000000000000007 0005 0002 0000000000000003 01 00000005 0000000100000000 02 00000000 ffffffff"},
		{&MapQuery{Query: fill(0x10), Asked: []NodeID{fill(0x20), fill(0x30)}}, goldenID(0x10) + "02" + goldenID(0x20) + goldenID(0x30)},
		{&Map{Query: fill(0x10), Nodes: []MapNode{
			{Process: fill(0x20), Node: fill(0x30), Hostname: "h", Dedicated: true, Links: []MapLink{{Port: 3, Name: "n", Mbps: 100000, RDMA: true, Peer: fill(0x40), PeerName: "p"}}},
			{Process: fill(0x50), Node: fill(0x60)}}},
			goldenID(0x10) + "02" + goldenID(0x20) + goldenID(0x30) + "0001 68 01 01 03 0001 6e 000186a0 01" + goldenID(0x40) + "0001 70" + goldenID(0x50) + goldenID(0x60) + "0000 00 00"},
		{&CircuitOpen{Circuit: 9, Kind: LaneVerbs, Room: 1 << 20, Half: testLanes()[0], Back: Ring{1, 2, 3},
			Route: []Hop{{Process: fill(0x20), Node: fill(0x30), In: 1, Out: 2}, {Process: fill(0x40), Node: fill(0x50), In: 3, Out: 4}},
			Final: Final{Process: fill(0x60), Node: fill(0x70), Port: 5, Token: 6}},
			"00000009 01 00100000" + goldenLane + goldenRing + "02" + goldenID(0x20) + goldenID(0x30) + "01 02" + goldenID(0x40) + goldenID(0x50) + "03 04" +
				goldenID(0x60) + goldenID(0x70) + "05 0000000000000006"},
		{&CircuitDeliver{Circuit: 9, Token: 6, Half: testLanes()[0], Read: Ring{1, 2, 3}, Write: Ring{1, 2, 3}}, "00000009 0000000000000006" + goldenLane + goldenRing + goldenRing},
		{&CircuitOpened{Circuit: 9, Room: 65536, Half: testLanes()[0], Write: Ring{1, 2, 3}}, "00000009 00010000" + goldenLane + goldenRing},
		{&CircuitClose{Circuit: 9, Asker: true, Reason: "x"}, "00000009 01 0001 78"},
		{&Ask{}, ""},
		{&CircuitStalled{Circuit: 9, Reason: "x"}, "00000009 0001 78"},
	}
}

func TestMessageGolden(t *testing.T) {
	for _, tt := range messages() {
		t.Run(tt.m.Type().String(), func(t *testing.T) {
			got, err := AppendMessage([]byte("before"), tt.m)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(hex.EncodeToString(unhex(t, hex.EncodeToString([]byte("before"))+tt.golden)), hex.EncodeToString(got)); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
			m, err := DecodeMessage(tt.m.Type(), got[len("before"):])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.m, m, equalAddrs); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessageTypes(t *testing.T) {
	want := []string{"Ack=0", "Open=1", "Accept=2", "Connected=3", "Validated=4", "Ports=5", "Refuse=6", "LaneDown=7", "Bye=8", "Report=9", "MapQuery=10", "Map=11", "CircuitOpen=12", "CircuitDeliver=13", "CircuitOpened=14", "CircuitClose=15", "Ask=16", "CircuitStalled=17", "Want=18", "Window=19", "WindowEnd=20", "Type(21)=21"}
	var got []string
	for i := range Type(22) {
		got = append(got, fmt.Sprintf("%v=%d", i, i))
	}
	if diff := cmp.Diff(want, got, equalAddrs); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

// TestMessageCutAndLengthened gives every message every wrong length.
func TestMessageCutAndLengthened(t *testing.T) {
	for _, tt := range messages() {
		b := unhex(t, tt.golden)
		for n := range len(b) {
			if m, err := DecodeMessage(tt.m.Type(), b[:n]); err == nil {
				t.Errorf("%v cut to %d of %d bytes was taken for %v", tt.m.Type(), n, len(b), m)
			}
		}
		if _, err := DecodeMessage(tt.m.Type(), append(b, 0)); err == nil || !strings.Contains(err.Error(), "1 bytes follow the message") {
			t.Errorf("%v with another byte: %v", tt.m.Type(), err)
		}
	}
	for _, typ := range []Type{TypeAck, 18, 255} {
		if _, err := DecodeMessage(typ, nil); err == nil {
			t.Errorf("type %d was decoded", typ)
		}
	}
}

func TestMessageRefuses(t *testing.T) {
	lane := func(change func(*Lane)) Message {
		l := testLanes()[0]
		change(&l)
		return &Accept{Lanes: []Lane{l}}
	}
	carry := func(change func(*CircuitOpen)) Message {
		m := &CircuitOpen{Kind: LaneVerbs, Half: testLanes()[0], Route: []Hop{{Node: fill(1)}, {Node: fill(2)}}, Final: Final{Node: fill(3)}}
		change(m)
		return m
	}
	tests := []struct {
		name string
		m    Message
		want string
	}{
		{"queue pair number", lane(func(l *Lane) { l.QPN = 1 << 24 }), "queue pair number is 0x1000000, which does not fit 24 bits"},
		{"packet sequence number", lane(func(l *Lane) { l.PSN = 1<<32 - 1 }), "packet sequence number is 0xffffffff"},
		{"lane index", lane(func(l *Lane) { l.Index = MaxLanes }), "lane index is 32, at most 31"},
		{"MTU", lane(func(l *Lane) { l.MTU = 6 }), "MTU is 6"},
		{"kind", lane(func(l *Lane) { l.Kind = 4 }), "lane kind 4 is unknown"},
		{"check of a queue pair", lane(func(l *Lane) { l.Check = true }), "lane 0 is not a socket"},
		{"options without a vendor", lane(func(l *Lane) { l.ECE.Vendor = 0 }), "lane 0: options of a queue pair without the vendor"},
		{"options of a socket", &Accept{Lanes: []Lane{{Kind: LaneTCP, ECE: ECE{Vendor: 1}}}}, "lane 0: options of a queue pair, and the lane is none"},
		{"options of a circuit", &Accept{Lanes: []Lane{{Kind: LaneCircuit, ECE: ECE{Vendor: 1}}}}, "lane 0: options of a queue pair, and the lane is none"},
		{"lane twice", &Accept{Lanes: append(testLanes(), testLanes()[1])}, "lane 31 is named twice"},
		{"lanes", &Open{Lanes: make([]Lane, MaxLanes+1)}, "33 lanes, at most 32"},
		{"domains", &Open{Domains: make([]Domain, MaxDomains+1)}, "9 domains, at most 8"},
		{"domain kind", &Open{Domains: []Domain{{Kind: 9}}}, "domain kind 9 is unknown"},
		{"failed lanes", &Validated{Failed: make([]LaneFailure, MaxLanes+1)}, "33 failed lanes, at most 32"},
		{"receives", &Report{Receives: make([]Received, MaxReceives+1)}, "257 receives, at most 256"},
		{"messages of a receive", &Report{Receives: []Received{{Seq: 1, Parts: make([]uint32, MaxSubs+1)}}}, "9 messages of a receive, at most 8"},
		{"failed lane", &Validated{Failed: []LaneFailure{{Index: 32}}}, "lane index is 32"},
		{"cause", &Validated{Failed: []LaneFailure{{Cause: 2}}}, "cause is 2, at most 1"},
		{"lane down", &LaneDown{Lane: 32}, "lane index is 32"},
		{"nodes asked", &MapQuery{Asked: make([]NodeID, MaxMapNodes+1)}, "17 nodes that were asked, at most 16"},
		{"nodes of a map", &Map{Nodes: make([]MapNode, MaxMapNodes+1)}, "17 nodes of a map, at most 16"},
		{"cables of a node", &Map{Nodes: []MapNode{{Links: make([]MapLink, MaxMapLinks+1)}}}, "17 cables of a node, at most 16"},
		{"circuit kind", carry(func(m *CircuitOpen) { m.Kind = LaneCircuit }), "circuit kind 3 is unknown"},
		{"no relay", carry(func(m *CircuitOpen) { m.Route = nil }), "no relay is named"},
		{"relays", carry(func(m *CircuitOpen) { m.Route = make([]Hop, MaxHops+1) }), "16 relays, at most 15"},
		{"route that goes twice through a node", carry(func(m *CircuitOpen) { m.Route = append(m.Route, Hop{Node: m.Route[0].Node}) }), "twice"},
		{"route through its end", carry(func(m *CircuitOpen) { m.Final.Node = m.Route[1].Node }), "which it goes through"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if b, err := AppendMessage(nil, tt.m); err == nil || b != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestMessageDecodeRefuses(t *testing.T) {
	const open = "00000001 00000005 00000002 404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f 5152535455565758"
	lane := func(s string) string { return "00000001 00000000 0000000000000000 00 01" + s }
	tests := []struct {
		name string
		t    Type
		b    string
		want string
	}{
		{"devices", TypeOpen, open + "09", "9 domains, at most"},
		{"domain kind", TypeOpen, open + "01 01 00 00000000 00", "domain kind 0 is unknown"},
		{"lanes", TypeOpen, open + "00 21", "33 lanes, at most"},
		{"queue pair number", TypeAccept, lane("00 01 02 01abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 00"), "0x1abcdef, which does not fit 24 bits"},
		{"kind", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 00 1112131415161718 0000 00 00000000 00000000 0000"), "lane kind 0 is unknown"},
		{"check", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 02 1112131415161718 0000 02"), "check is 2, at most 1"},
		{"check of a queue pair", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 01 00000000 00000000 0000"), "lane 0 is not a socket"},
		{"options without a vendor", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 00 00000000 00000001 0000"), "lane 0: options of a queue pair without the vendor"},
		{"options of a socket", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 02 1112131415161718 0000 00 000015b3 00000001 0000"), "lane 0: options of a queue pair, and the lane is none"},
		{"long text", TypeRefuse, "00000001 00 0401" + strings.Repeat("61", 1025), "text has 1025 bytes, at most 1024"},
		{"bad UTF-8", TypeRefuse, "00000001 00 0001 ff", "text is not plain UTF-8"},
		{"control character", TypeRefuse, "00000001 00 0001 0a", "text is not plain UTF-8"},
		{"control character of two bytes", TypeRefuse, "00000001 00 0002 c29b", "text is not plain UTF-8"},
		{"separator of lines", TypeRefuse, "00000001 00 0003 e280a8", "text is not plain UTF-8"},
		{"overridden direction", TypeRefuse, "00000001 00 0003 e280ae", "text is not plain UTF-8"},
		{"long reason", TypeLaneDown, "00000001 02 00000003 00 0101" + strings.Repeat("61", 257), "reason has 257 bytes"},
		{"failed lanes", TypeValidated, "00000001 00000000 00000000 21", "33 failed lanes, at most"},
		{"cause", TypeValidated, "00000001 00000000 00000000 01 00 02 0000", "cause is 2, at most 1"},
		{"receives", TypeReport, "00000001 00 00000000 0000 0000000000000000 0000 0101", "257 receives, at most 256"},
		{"messages of a receive", TypeReport, "00000001 00 00000000 0000 0000000000000000 0000 0001 0000000000000001 09", "9 messages of a receive, at most"},
		{"nodes asked", TypeMapQuery, goldenID(1) + "11", "17 nodes that were asked, at most"},
		{"nodes of a map", TypeMap, goldenID(1) + "11", "17 nodes of a map, at most"},
		{"cables of a node", TypeMap, goldenID(1) + "01" + goldenID(2) + goldenID(3) + "0000 00 11", "17 cables of a node, at most"},
		{"circuit kind", TypeCircuitOpen, "00000009 03 00100000" + goldenLane + goldenRing + "00", "circuit kind 3 is unknown"},
		{"no relay", TypeCircuitOpen, "00000009 01 00100000" + goldenLane + goldenRing + "00", "no relay is named"},
		{"relays", TypeCircuitOpen, "00000009 01 00100000" + goldenLane + goldenRing + "10", "16 relays, at most"},
		{"route that goes twice through a node", TypeCircuitOpen, "00000009 01 00100000" + goldenLane + goldenRing + "02" + strings.Repeat(goldenID(1)+goldenID(2)+"0000", 2), "twice"},
		{"order of receives", TypeReport, "00000001 00 00000000 0000 0000000000000000 0000 0002 0000000000000002 00 0000000000000002 00", "receive 2 follows receive 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := DecodeMessage(tt.t, unhex(t, tt.b)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestTextIsMadeFit(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "cable 2 is down", "cable 2 is down"},
		{"control characters", "a\nb\x00c\x7f\u009b2J", "a b?c??2J"},
		{"overridden direction", "a\u202eb", "a?b"},
		{"bad UTF-8", "a\xff\xfeb", "a??b"},
		{"long", strings.Repeat("x", 5000), strings.Repeat("x", MaxText-3) + "…"},
		{"cut inside a rune", strings.Repeat("x", MaxText-4) + "ßßß", strings.Repeat("x", MaxText-4) + "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := AppendMessage(nil, &Refuse{Text: tt.in})
			if err != nil {
				t.Fatal(err)
			}
			m, err := DecodeMessage(TypeRefuse, b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&Refuse{Text: tt.want}, m); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLargestMessageFitsAFrame(t *testing.T) {
	open := &Open{}
	for range MaxDomains {
		open.Domains = append(open.Domains, Domain{Kind: LaneVerbs})
	}
	proved := &Validated{}
	for i := range uint8(MaxLanes) {
		open.Lanes = append(open.Lanes, Lane{Index: i, Kind: LaneTCP})
		proved.Failed = append(proved.Failed, LaneFailure{Index: i, Reason: strings.Repeat("x", MaxReason)})
	}
	report := &Report{}
	for i := range uint64(MaxReceives) {
		report.Receives = append(report.Receives, Received{Seq: i, Parts: make([]uint32, MaxSubs)})
	}
	node := MapNode{Hostname: strings.Repeat("x", MaxName)}
	for range MaxMapLinks {
		node.Links = append(node.Links, MapLink{Name: strings.Repeat("x", MaxLinkName), PeerName: strings.Repeat("x", MaxLinkName)})
	}
	nodes := &Map{}
	carry := &CircuitOpen{Kind: LaneVerbs, Half: testLanes()[0], Final: Final{Node: fill(0xff)}}
	for i := range uint8(MaxMapNodes) {
		nodes.Nodes = append(nodes.Nodes, node)
		if i < MaxHops {
			carry.Route = append(carry.Route, Hop{Node: fill(i)})
		}
	}
	for _, m := range []Message{open, proved, report, nodes, carry, &Refuse{Text: strings.Repeat("x", MaxText), Loss: strings.Repeat("x", MaxText)}} {
		b, err := AppendMessage(nil, m)
		if err != nil || len(b) > MaxBody {
			t.Errorf("%v: %d bytes, %v", m.Type(), len(b), err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, tt := range messages() {
		f.Add(uint8(tt.m.Type()), unhex(f, tt.golden))
	}
	f.Fuzz(func(t *testing.T, typ uint8, in []byte) {
		m, err := DecodeMessage(Type(typ), in)
		if err != nil {
			return
		}
		if m.Type() != Type(typ) {
			t.Errorf("type %d decoded to %v", typ, m.Type())
		}
		out, err := AppendMessage(nil, m)
		if err != nil {
			t.Fatalf("decoded but not encodable: %v", err)
		}
		if !bytes.Equal(in, out) {
			t.Errorf("two spellings of one message:\n%x\n%x", in, out)
		}
	})
}
