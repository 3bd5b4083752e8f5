package handshake

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testLanes() []Lane {
	return []Lane{
		{Index: 0, Port: 1, PeerPort: 2, QPN: 0xabcdef, PSN: 0x123456, Addr: netip.AddrFrom16(fill(0x30)), GIDIndex: 3, LID: 0x0405, MTU: 5, MaxMsg: 1 << 30, Kind: LaneVerbs, Token: 0x1112131415161718},
		{Index: 31, Port: 4, PeerPort: 5, Addr: netip.IPv6Unspecified(), Kind: LaneTCP, Token: 0x2122232425262728, TCPPort: 0xbeef, Check: true},
	}
}

const goldenLanes = `02
	00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 00
	1f 04 05 00000000 00000000 00000000000000000000000000000000 0000 0000 00 00000000 02 2122232425262728 beef 01`

func messages() []struct {
	m      Message
	golden string
} {
	return []struct {
		m      Message
		golden string
	}{
		{&Open{Conn: 1, Epoch: 5, Listen: 2, Proof: fill32(0x40), Base: 0x5152535455565758, Domains: []Domain{{Port: 1, RKey: 0x61626364}, {Port: 2, RKey: 7}}, Lanes: testLanes()},
			"00000001 00000005 00000002 404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f 5152535455565758 02 01 61626364 02 00000007" + goldenLanes},
		{&Accept{Conn: 1, Epoch: 6, Base: 3, Domains: []Domain{{Port: 9, RKey: 8}}, Lanes: testLanes()},
			"00000001 00000006 0000000000000003 01 09 00000008" + goldenLanes},
		{&Connected{Conn: 1, Epoch: 7, Lanes: 0x80000001}, "00000001 00000007 80000001"},
		{&Proved{Conn: 1, Epoch: 8, Lanes: 1, Failed: []LaneFailure{{Index: 31, Reason: "no route"}, {Index: 0, Cause: CauseNode, Reason: "x"}}},
			"00000001 00000008 00000001 02 1f 00 0008 6e6f20726f757465 00 01 0001 78"},
		{&Ports{Ports: []Port{{Index: 2, Device: "d", Num: 1, Netdev: "n", LinkLayer: 2, LID: 3, MTU: 5, NetdevMTU: 9000, MaxMsgSize: 1 << 30, SpeedMbps: 1000}}},
			"01 02 000164 01 00016e 02 0003 05 00002328 40000000 000003e8 00"},
		{&Refuse{Conn: 1, Code: 4, Text: "größer"}, "00000001 04 0008 6772c3b6c39f6572"},
		{&LaneDown{Conn: 1, Lane: 2, Epoch: 3, Reason: "x"}, "00000001 02 00000003 0001 78"},
		{&Bye{Conn: 6}, "00000006"},
		{&Report{Conn: 1, Lane: 31, Epoch: 2, Again: 256, Receives: []Received{{Seq: 3, Parts: []uint32{5}}, {Seq: 1 << 32, Parts: []uint32{0, 1<<32 - 1}}}},
			"00000001 1f 00000002 0100 0002 0000000000000003 01 00000005 0000000100000000 02 00000000 ffffffff"},
	}
}

func TestMessageGolden(t *testing.T) {
	for _, tt := range messages() {
		t.Run(tt.m.Type().String(), func(t *testing.T) {
			got, err := tt.m.AppendTo([]byte("before"))
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
	want := []string{"Ack=0", "Open=1", "Accept=2", "Connected=3", "Proved=4", "Ports=5", "Refuse=6", "LaneDown=7", "Bye=8", "Report=9", "Type(10)=:"}
	var got []string
	for i := range Type(11) {
		got = append(got, i.String()+"="+string('0'+rune(i)))
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
	for _, typ := range []Type{TypeAck, 10, 255} {
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
	tests := []struct {
		name string
		m    Message
		want string
	}{
		{"queue pair number", lane(func(l *Lane) { l.QPN = 1 << 24 }), "queue pair number is 0x1000000, which does not fit 24 bits"},
		{"packet sequence number", lane(func(l *Lane) { l.PSN = 1<<32 - 1 }), "packet sequence number is 0xffffffff"},
		{"lane index", lane(func(l *Lane) { l.Index = MaxLanes }), "lane index is 32, at most 31"},
		{"MTU", lane(func(l *Lane) { l.MTU = 6 }), "MTU is 6"},
		{"kind", lane(func(l *Lane) { l.Kind = 3 }), "lane kind 3 is unknown"},
		{"check of a queue pair", lane(func(l *Lane) { l.Check = true }), "lane 0 is no socket"},
		{"lane twice", &Accept{Lanes: append(testLanes(), testLanes()[1])}, "lane 31 is named twice"},
		{"lanes", &Open{Lanes: make([]Lane, MaxLanes+1)}, "33 lanes, at most 32"},
		{"domains", &Open{Domains: make([]Domain, MaxDomains+1)}, "9 domains, at most 8"},
		{"failed lanes", &Proved{Failed: make([]LaneFailure, MaxLanes+1)}, "33 failed lanes, at most 32"},
		{"receives", &Report{Receives: make([]Received, MaxReceives+1)}, "257 receives, at most 256"},
		{"messages of a receive", &Report{Receives: []Received{{Seq: 1, Parts: make([]uint32, MaxSubs+1)}}}, "9 messages of a receive, at most 8"},
		{"failed lane", &Proved{Failed: []LaneFailure{{Index: 32}}}, "lane index is 32"},
		{"cause", &Proved{Failed: []LaneFailure{{Cause: 2}}}, "cause is 2, at most 1"},
		{"lane down", &LaneDown{Lane: 32}, "lane index is 32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if b, err := tt.m.AppendTo(nil); err == nil || b != nil || !strings.Contains(err.Error(), tt.want) {
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
		{"devices", TypeOpen, open + "09", "number of domains is 9"},
		{"lanes", TypeOpen, open + "00 21", "number of lanes is 33"},
		{"queue pair number", TypeAccept, lane("00 01 02 01abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 00"), "0x1abcdef, which does not fit 24 bits"},
		{"kind", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 00 1112131415161718 0000 00"), "lane kind 0 is unknown"},
		{"check", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 02 1112131415161718 0000 02"), "check is 2, at most 1"},
		{"check of a queue pair", TypeAccept, lane("00 01 02 00abcdef 00123456 303132333435363738393a3b3c3d3e3f 0003 0405 05 40000000 01 1112131415161718 0000 01"), "lane 0 is no socket"},
		{"long text", TypeRefuse, "00000001 00 0401" + strings.Repeat("61", 1025), "text has 1025 bytes, at most 1024"},
		{"bad UTF-8", TypeRefuse, "00000001 00 0001 ff", "text is not plain UTF-8"},
		{"control character", TypeRefuse, "00000001 00 0001 0a", "text is not plain UTF-8"},
		{"long reason", TypeLaneDown, "00000001 02 00000003 0101" + strings.Repeat("61", 257), "reason has 257 bytes"},
		{"failed lanes", TypeProved, "00000001 00000000 00000000 21", "number of failed lanes is 33"},
		{"cause", TypeProved, "00000001 00000000 00000000 01 00 02 0000", "cause is 2, at most 1"},
		{"receives", TypeReport, "00000001 00 00000000 0000 0101", "257 receives, at most 256"},
		{"messages of a receive", TypeReport, "00000001 00 00000000 0000 0001 0000000000000001 09", "number of messages of a receive is 9"},
		{"order of receives", TypeReport, "00000001 00 00000000 0000 0002 0000000000000002 00 0000000000000002 00", "receive 2 follows receive 2"},
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
		{"control characters", "a\nb\x00c\x7f", "a b c "},
		{"bad UTF-8", "a\xff\xfeb", "a?b"},
		{"long", strings.Repeat("x", 5000), strings.Repeat("x", MaxText)},
		{"cut inside a rune", strings.Repeat("x", MaxText-1) + "ß", strings.Repeat("x", MaxText-1)},
		{"long and broken", strings.Repeat("ß", 5000), strings.Repeat("ß", MaxText/2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := (&Refuse{Text: tt.in}).AppendTo(nil)
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
	open := &Open{Domains: make([]Domain, MaxDomains)}
	proved := &Proved{}
	for i := range uint8(MaxLanes) {
		open.Lanes = append(open.Lanes, Lane{Index: i, Kind: LaneTCP})
		proved.Failed = append(proved.Failed, LaneFailure{Index: i, Reason: strings.Repeat("x", MaxReason)})
	}
	report := &Report{}
	for i := range uint64(MaxReceives) {
		report.Receives = append(report.Receives, Received{Seq: i, Parts: make([]uint32, MaxSubs)})
	}
	for _, m := range []Message{open, proved, report, &Refuse{Text: strings.Repeat("x", MaxText)}} {
		b, err := m.AppendTo(nil)
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
		out, err := m.AppendTo(nil)
		if err != nil {
			t.Fatalf("decoded but not encodable: %v", err)
		}
		if !bytes.Equal(in, out) {
			t.Errorf("two spellings of one message:\n%x\n%x", in, out)
		}
	})
}
