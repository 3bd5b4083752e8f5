package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDraw(t *testing.T) {
	want := `
                    +------------+
                    |   node-a   |
                    +------------+
           rxe100 .1 /        \ .1 rxe102
                    /          \
  192.168.100.0/24 /            \ 192.168.102.0/24
                  /              \
       rxe100 .2 /                \ .3 rxe102
        +------------+          +------------+
        |   node-b   |----------|   node-c   |
        +------------+          +------------+
            rxe101 .2             .3 rxe101
                   192.168.101.0/24
`
	if diff := cmp.Diff(want[1:], Draw(Triangle())); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

func TestSetup(t *testing.T) {
	const want = `set -e
. /lab/lib.sh
cat > /etc/hosts <<END
127.0.0.1 localhost
10.10.10.1 node-a
10.10.10.2 node-b
10.10.10.3 node-c
END
rename 52:54:00:00:02:00 r100
rename 52:54:00:00:02:01 r101
rename 52:54:00:00:02:ff mgmt
ip -batch - <<END
link set lo up
addr add 10.10.10.2/24 dev mgmt
link set mgmt up
addr add 192.168.100.2/24 dev r100
link set r100 mtu 9000 up
addr add 192.168.101.2/24 dev r101
link set r101 mtu 9000 up
END
cat > /run/rdma.batch <<END
link add rxe100 type rxe netdev r100
link add rxe101 type rxe netdev r101
END
rdma -b /run/rdma.batch
active rxe100 r100 ffff:c0a8:6402
active rxe101 r101 ffff:c0a8:6502
`
	if diff := cmp.Diff(want, Triangle().setup("b")); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
}

func TestDriverScript(t *testing.T) {
	j := DriverJob{Args: []string{"--work", "it's"}, Env: map[string]string{"B": "2", "A": "1"}, Port: 7000}
	if diff := cmp.Diff(`export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export A='1'
export B='2'
[ $NODE = a ] && rank=0
[ $NODE = b ] && rank=1
[ $NODE = c ] && rank=2
./netdriver --plugin ./libnccl-net-mesh.so --rank $rank --nranks 3 --rendezvous 10.10.10.1:7000 '--work' 'it'\''s'
`, j.Script(Triangle())); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
}

func TestCheckZero(t *testing.T) {
	tests := []struct{ name, output, err string }{
		{"zero", "rxe100 send_rnr_err 0\n", ""},
		{"not zero", "rxe100 send_rnr_err 3\n", "node-b: rxe100 send_rnr_err is 3, expected 0"},
		{"no device", "", "no RDMA device"},
		{"garbage", "cat: no such file\n", "cannot read"},
	}
	for _, tt := range tests {
		err := checkZero([]Result{{Machine: "b", Output: tt.output}})
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}

func TestParseCounters(t *testing.T) {
	got, err := ParseCounters("rxe100 rcvd_rnr_err 0\nrxe102 rcvd_rnr_err 7\n")
	want := []Counter{{"rxe100", "rcvd_rnr_err", 0}, {"rxe102", "rcvd_rnr_err", 7}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("counters (-want +got):\n%s%v", diff, err)
	}
	if _, err := ParseCounters("rxe100 rcvd_rnr_err x\n"); err == nil {
		t.Error("a counter that is no number passed")
	}
}
