package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// machinesAreDistinct: what tells one node from another differs, as it does between real machines.
func machinesAreDistinct(_ *testing.T, ctx context.Context, l *Lab) error {
	results, err := run(ctx, l, `
read -r boot </proc/sys/kernel/random/boot_id; read -r id </etc/machine-id
echo "host $(hostname)"; echo "boot $boot"; echo "machine $id"; cat /sys/class/infiniband/*/node_guid`)
	if err != nil {
		return err
	}
	seen := make(map[string]string)
	for _, r := range results {
		if n := strings.Count(r.Output, "\n"); n != 5 {
			err = errors.Join(err, fmt.Errorf("%s: %d lines, expected 5:\n%s", r.Machine, n, r.Output))
		}
		for line := range strings.Lines(r.Output) {
			if other, ok := seen[line]; ok {
				err = errors.Join(err, fmt.Errorf("%s and %s have the same %q", other, r.Machine, strings.TrimSpace(line)))
			}
			seen[line] = r.Machine
		}
	}
	return err
}

// managementNetwork: bulk TCP between the machines beside the cables, checked; and host names resolve.
func managementNetwork(_ *testing.T, ctx context.Context, l *Lab) error {
	results, err := run(ctx, l, `
case $NODE in a) from=node-b;; b) from=node-c;; c) from=node-a;; esac
seq 1 400000 >/tmp/out
timeout 120 nc -l -p 5001 </tmp/out >/dev/null & server=$!
for i in $(seq 100); do { exec 4<>/dev/tcp/$from/5001; } 2>/dev/null && break; sleep 0.2; done
timeout 120 cat <&4 >/tmp/in
exec 4>&-
wait $server
cmp /tmp/in /tmp/out && echo same`)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, outputs(results))
	}
	return nil
}

// ringOfWrites: perftest's RDMA writes a -> c -> b -> a, all cables busy at once. The queue pairs' time-out (-u 20: 4 s) is long,
// because a machine on a busy host stands still for longer than an ordinary one.
func ringOfWrites(_ *testing.T, ctx context.Context, l *Lab) error {
	results, err := run(ctx, l, `
case $NODE in
a) in=100 out=102 peer=192.168.102.3;;
b) in=101 out=100 peer=192.168.100.1;;
c) in=102 out=101 peer=192.168.101.2;;
esac
timeout 200 ib_write_bw -d rxe$in -x 1 -u 20 -F -s 65536 -n 200 >/tmp/server 2>&1 & server=$!
for i in $(seq 10); do # until the peer listens
	sleep 1
	timeout 200 ib_write_bw -d rxe$out -x 1 -u 20 -F -s 65536 -n 200 $peer >/tmp/client 2>&1; status=$?
	grep -q "Couldn't connect\|Unable to init" /tmp/client || break
done
wait $server; server=$?
cat /tmp/client; echo "client $status server $server"
[ $status = 0 ] && [ $server = 0 ] || { cat /tmp/server; exit 1; }`+sentSomething)
	if err != nil {
		return err
	}
	for _, r := range results {
		if !strings.Contains(r.Output, "\n 65536 ") {
			return fmt.Errorf("%s: no result line:\n%s", r.Machine, r.Output)
		}
	}
	counters, err := run(ctx, l, CounterScript(rnrCounters...))
	if err != nil {
		return err
	}
	return checkZero(counters)
}

// cableOutAndIn: pulling a cable takes the carrier and the RDMA port at both ends, and only there; plugging it in brings
// them back.
func cableOutAndIn(_ *testing.T, ctx context.Context, l *Lab) error {
	const state = `
want=$1
for i in $(seq 300); do
	got=
	for n in /sys/class/infiniband/*; do read -r s <$n/ports/1/state; got="$got ${n##*/} ${s#*: }"; done
	[ "$got" = "$want" ] && exit 0
	sleep 0.1
done
echo "ports:$got; expected:$want"; exit 1`
	expect := func(want map[string]string) error {
		for m, w := range want {
			r, err := l.Machine(m).Run(ctx, "set -- '"+w+"'\n"+state)
			if err := errors.Join(err, failed([]Result{r})); err != nil {
				return err
			}
		}
		return nil
	}
	if err := l.SetCable("ab", false); err != nil {
		return err
	}
	err := expect(map[string]string{
		"a": " rxe100 DOWN rxe102 ACTIVE", "b": " rxe100 DOWN rxe101 ACTIVE", "c": " rxe101 ACTIVE rxe102 ACTIVE"})
	if err := errors.Join(err, l.SetCable("ab", true)); err != nil {
		return err
	}
	return expect(map[string]string{"a": " rxe100 ACTIVE rxe102 ACTIVE", "b": " rxe100 ACTIVE rxe101 ACTIVE"})
}

// loss: RC delivers over a cable that loses packets, and the counters show that it had to work for it. Whoever ends first takes its
// queue pair along, and the other waits in vain when the last acknowledgement was lost: so there is more than one try.
func loss(t *testing.T, ctx context.Context, l *Lab) error {
	server := make(chan error, 1)
	go func() {
		r, err := l.Machine("a").Run(ctx, "until [ -e /tmp/over ]; do timeout 25 ibv_rc_pingpong -d rxe100 -g 1 -c -s 65536 -n 30; done; true")
		server <- errors.Join(err, failed([]Result{r}))
	}()
	r, err := l.Machine("b").Run(ctx, `. /lab/lib.sh
netem r100 loss 3% && trap 'netem_off r100' EXIT
for i in $(seq 30); do
	sleep 0.5
	timeout 25 ibv_rc_pingpong -d rxe100 -g 1 -c -s 65536 -n 30 192.168.100.1 >/tmp/client 2>&1; status=$?
	echo "try $i: status $status: $(tail -n 1 /tmp/client)"
	[ $status = 0 ] && break
done
hw_counter completer_retry_err
hw_counter rcvd_seq_err
[ $status = 0 ] && tc -s qdisc show dev r100 | grep -q 'dropped [1-9]'`)
	_, over := l.Machine("a").Run(ctx, "touch /tmp/over; busybox killall ibv_rc_pingpong")
	t.Logf("\n%s", r.Output)
	return errors.Join(err, failed([]Result{r}), over, <-server)
}

// powerCut: a killed machine is ErrMachine for who runs something in it, and nothing to the others.
func powerCut(t *testing.T, ctx context.Context, l *Lab) error {
	victim := make(chan error, 1)
	go func() {
		_, err := l.Machine("c").Run(ctx, "echo alive; sleep 1000")
		victim <- err
	}()
	time.Sleep(time.Second)
	l.Machine("c").Kill()
	if err := <-victim; !errors.Is(err, ErrMachine) {
		t.Errorf("script in the killed machine: %v; want ErrMachine", err)
	}

	r, err := l.Machine("a").Run(ctx, "busybox ping -c 1 -W 20 node-b >/dev/null && ! busybox ping -c 1 -W 2 node-c >/dev/null")
	return errors.Join(err, failed([]Result{r}))
}
