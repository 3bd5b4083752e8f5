package mesh

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// An Exchange describes what two ranks put into each other's windows, signal to each other and get from each other.
type Exchange struct {
	From, To   string
	Operations int    // of each rank
	Largest    int    // bytes of the largest put or get at most
	Pauses     int    // percent of the operations before which a rank computes for a while
	Window     int    // operations of a rank that are outstanding at most
	Memory     string // of the windows that the ranks put into: HostMemory or GPUMemory; GPUMemory for half of the windows with words too
}

const (
	words     = 3  // that signals of the other side change
	finished  = 24 // offset of the word behind them that says that the other side has begun all its operations
	control   = 32 // bytes of a window of words
	shortLife = 1 << 14
)

// A pair is the state that both sides of an exchange share.
type pair struct {
	name  string
	sides [2]*exchange
	over  sync.Mutex // guards complete of both sides
}

// An exchange is one rank's side of an exchange.
type exchange struct {
	*pair
	*Exchange
	r      *Rank
	side   int
	draws  *draw.Stream
	begun  func() // called when the first operation begins
	listen ncclnet.Handle
	handle *[ncclnet.HandleSize]byte // of this side's listener; the other side's connect writes to it
	send   ncclnet.Handle
	recv   ncclnet.Handle
	remote *onesided.Peer

	model *model // of this side's target window, which the other side changes
	own   [4]*onesided.Window
	mem   [4]*buffers // one buffer each: a window, between borders that nobody may write
	short *short
	ended []*short

	landing, source []byte
	due             time.Duration
	ops             []issued // outstanding, in the order of their beginning
	began           int
	flushed         bool // the last operations are begun
	done            bool // all operations are done, and all of the other side's were seen
	complete        bool
}

// The windows of a side, in the order of exchange.own.
const (
	aimed   = 0 // the other side puts into it
	signals = 1 // the other side's signals change it
	static  = 2 // the other side gets from it
	scratch = 3 // the sources of puts, and the targets of gets, behind each other
)

// An issued is an operation that is outstanding.
type issued struct {
	op    onesided.Op
	what  string
	slot  int
	get   int // bytes of a get, or -1
	at    int // offset of a get in the other side's window
	short *short
	put   int // its number in the model; 0: it is none
}

// A short is a window that ends while the other side puts into it.
type short struct {
	mem     *ibv.Memory
	w       *onesided.Window
	due     time.Duration // when it is closed
	closing bool
}

// Exchange makes an exchange. What it draws depends on its two machines and on how many exchanges there are between
// them already, but on no others.
func (j *Job) Exchange(d Exchange) {
	name := "exchange of " + d.From + " and " + d.To
	j.pairs[name]++
	if n := j.pairs[name]; n > 1 {
		name += fmt.Sprintf(", number %d", n)
	}
	p := &pair{name: name}
	for i, m := range []string{d.From, d.To} {
		r := j.rank(m)
		s := j.world.Bus.Source("side " + m + " of " + name).Stream
		f := &exchange{pair: p, Exchange: &d, r: r, side: i, draws: s, begun: j.flows}
		f.model = &model{key: s.Uint64(), words: make([]uint64, words)}
		listen, handle, result := r.net.Listen(r.context, 0)
		if err := r.failed("listen", result); err != nil {
			j.world.Errorf("%v", err)
			j.world.T.FailNow()
		}
		f.listen, f.handle = listen, &handle
		p.sides[i] = f
		r.flows = append(r.flows, f)
		j.quiet.Add(1)
	}
}

func (f *exchange) String() string   { return fmt.Sprintf("%s, side of %s", f.name, f.r.Machine.Name()) }
func (f *exchange) other() *exchange { return f.sides[1-f.side] }
func (f *exchange) ready() bool      { return f.remote != nil }
func (f *exchange) peer() *Rank      { return f.other().r }

// timeless makes a call of the product that may not let virtual time pass.
func (r *Rank) timeless(what string, f func() error) error {
	var err error
	return errors.Join(r.call(what, func() ncclnet.Result { err = f(); return 0 }), err)
}

func (f *exchange) step() (moved, over bool, err error) {
	if f.remote == nil {
		return f.connect()
	}
	err = f.r.timeless("progress", func() error {
		moved = f.r.windows().Progress() || moved
		return nil
	})
	if err == nil {
		err = f.class(f.remote.Err())
	}
	if err != nil {
		return moved, false, err
	}
	for _, b := range f.mem {
		if b != nil && !b.bordersIntact(0, b.each-2*border) {
			return moved, false, errors.New("bytes outside a window were written")
		}
	}
	seen, err := f.see(false)
	if err != nil {
		return moved, false, err
	}
	ended, err := f.reap()
	if err != nil {
		return moved, false, err
	}
	begun, err := f.begin()
	if err != nil {
		return moved, false, err
	}
	over, err = f.finish()
	return moved || seen || ended || begun, over, err
}

// class names the result that NCCL would see.
func (f *exchange) class(err error) error {
	if errors.Is(err, fault.ErrPeer) || errors.Is(err, fault.ErrLane) {
		return fmt.Errorf("ncclRemoteError: %w", err)
	}
	return err
}

// connect sets up both connections, and then the windows.
func (f *exchange) connect() (moved, over bool, err error) {
	o := f.other()
	if f.send == 0 {
		err = f.r.call("connect", func() (r ncclnet.Result) {
			f.send, r = f.r.net.Connect(f.r.context, 0, o.handle)
			return r
		})
		moved = f.send != 0
	}
	if f.recv == 0 && err == nil {
		err = f.r.call("accept", func() (r ncclnet.Result) {
			f.recv, r = f.r.net.Accept(f.listen)
			return r
		})
		moved = moved || f.recv != 0
	}
	if err != nil || f.send == 0 || f.recv == 0 {
		return moved, o.r.killed.Load() && f.r.world.Bus.Now()-o.r.died > bootstrap, err
	}
	if err := f.r.failed("closeListen", f.r.net.CloseListen(f.listen)); err != nil {
		return false, false, err
	}
	return true, false, f.open()
}

// open makes a peer of both connections, and registers the windows, in either order.
func (f *exchange) open() error {
	s, err := f.r.net.SendEnd(f.send)
	if err != nil {
		return err
	}
	r, err := f.r.net.RecvEnd(f.recv)
	if err != nil {
		return err
	}
	early := f.draws.Chance(0.5)
	if early {
		err = f.register()
	}
	if err == nil {
		f.remote, err = f.r.windows().Connect(s, r)
	}
	if err == nil && !early {
		err = f.register()
	}
	if err != nil {
		f.remote = f.r.windows().Self() // so that nothing more is tried
	}
	return f.class(err)
}

// register registers the windows.
func (f *exchange) register() error {
	if err := f.r.share(); err != nil {
		return err
	}
	slots := f.Window
	each := (f.Largest + 7) / 8 * 8
	for i, n := range []int{aimed: max(8, 2*each), signals: control, static: max(8, 2*each), scratch: max(8, 2*slots*each)} {
		kind := HostMemory
		if i == aimed || i == signals && f.Memory == GPUMemory && f.draws.Chance(0.5) {
			kind = f.Memory
		}
		b, err := f.allocate(i, n, kind)
		if err != nil {
			return err
		}
		switch i {
		case aimed:
			f.model.bytes, f.model.gpu = b, f.mem[i].gpu != nil
		case static:
			fill(b, f.model.key, 0)
		case scratch:
			f.source, f.landing = b[:slots*each], b[slots*each:]
		}
	}
	return nil
}

// allocate makes window i of n bytes in a kind of memory, and returns its bytes.
func (f *exchange) allocate(i, n int, kind string) (b []byte, err error) {
	if f.mem[i], err = f.r.newBuffers(1, n, kind, false); err != nil {
		return nil, err
	}
	b, addr := f.mem[i].at(0, n)
	registered := lane.HostMemory
	if f.mem[i].gpu != nil {
		registered = lane.GPUMemory
	}
	f.own[i], err = f.r.windows().Register(registered, addr, uintptr(n))
	return b, err
}

// A shared is a window with a word that all other sides of a rank's exchanges add to.
type shared struct {
	space *onesided.Space // the rank's
	mem   *ibv.Memory
	w     *onesided.Window
	want  atomic.Uint64 // of the word in the end
}

// windows returns the rank's space.
func (r *Rank) windows() *onesided.Space {
	if r.shared.space == nil {
		r.shared.space = onesided.New()
	}
	return r.shared.space
}

// share registers the shared window, before any other.
func (r *Rank) share() (err error) {
	if r.shared.w != nil {
		return nil
	}
	t, err := r.net.Transport(r.context)
	if err != nil {
		return err
	}
	r.windows().UseCopier(t.Copier())
	if r.shared.mem, err = ibv.Alloc(8); err != nil {
		return err
	}
	r.shared.w, err = r.windows().Register(lane.HostMemory, r.shared.mem.Addr(), 8)
	return err
}

// endExchanges closes the rank's space, and frees the memory of all windows. whole says that all exchanges have ended
// as they should.
func (r *Rank) endExchanges(whole bool) error {
	if r.shared.space == nil {
		return nil
	}
	var errs []error
	if w := r.shared.w; w != nil && whole {
		word, err := w.Word(0)
		if err == nil && word.Load() != r.shared.want.Load() {
			err = fmt.Errorf("%s: the shared word is %d, and should be %d", r.Name, word.Load(), r.shared.want.Load())
		}
		errs = append(errs, err)
	}
	errs = append(errs, r.shared.space.Close())
	if err := errors.Join(errs...); err != nil {
		return err // the memory may still be used
	}
	for _, f := range r.flows {
		if x, ok := f.(*exchange); ok {
			errs = append(errs, x.freeMemory())
		}
	}
	if r.shared.mem != nil {
		errs = append(errs, r.shared.mem.Free())
	}
	return errors.Join(errs...)
}

// see looks at what the other side has changed. all says that all its operations are done.
func (f *exchange) see(all bool) (moved bool, err error) {
	var now [words]uint64
	for i := range now {
		if now[i], err = f.wordAt(uint64(8 * i)); err != nil {
			return false, err
		}
	}
	return f.model.see(now[:], all)
}

// wordAt returns the word at an offset of the window of words, as the processor sees it, or the GPU in whose memory it lies.
func (f *exchange) wordAt(offset uint64) (uint64, error) {
	if f.mem[signals].gpu != nil {
		b, _ := f.mem[signals].at(0, control)
		return binary.LittleEndian.Uint64(b[offset:]), nil
	}
	w, err := f.own[signals].Word(offset)
	if err != nil {
		return 0, err
	}
	return w.Load(), nil
}

// known reports whether this side has been told of all windows of the other side.
func (f *exchange) known() bool {
	for _, w := range append(f.other().own[:], f.other().r.shared.w) {
		if w == nil {
			return false
		}
		if _, ok := f.remote.Window(w.ID()); !ok {
			return false
		}
	}
	return true
}

// begin begins operations.
func (f *exchange) begin() (moved bool, err error) {
	if f.began < f.Operations && !f.known() {
		return false, nil
	}
	if err := f.shorts(); err != nil {
		return false, err
	}
	for f.began < f.Operations && len(f.ops) < f.Window {
		if f.due == 0 && f.draws.Chance(float64(f.Pauses)/100) {
			f.due = f.r.world.Bus.Now() + time.Duration(f.draws.LogUniform(0, 300_000))*time.Microsecond
		}
		if f.due > f.r.world.Bus.Now() {
			break
		}
		f.due = 0
		if err := f.operate(); err != nil {
			return moved, err
		}
		if f.began++; f.began == 1 {
			f.begun()
		}
		moved = true
	}
	return moved, nil
}

// operate begins an operation that is drawn. There are fewer operations outstanding than may be, so that each begins.
func (f *exchange) operate() error {
	o := f.other()
	slot := f.free()
	each := len(f.source) / f.Window
	n := f.draws.LogUniform(0, f.Largest)
	room := int(o.own[aimed].Size())
	at := int(f.draws.Uint64N(uint64(room - n + 1)))
	kind := f.draws.Uint64N(100)
	is := issued{slot: slot, get: -1}
	signal := f.drawSignal()
	src := f.source[slot*each:][:n]
	var err error
	return errors.Join(f.r.timeless("operation", func() error {
		switch {
		case kind < 70:
			is.put = o.model.put(at, n)
			o.model.write(src, is.put, at)
			if kind < 45 {
				is.what = "put"
				is.op, err = f.remote.Put(o.own[aimed].ID(), uint64(at), f.own[scratch], uint64(slot*each), uint64(n))
				break
			}
			is.what = "put and signal"
			o.model.signal(signal)
			is.op, err = f.remote.PutSignal(o.own[aimed].ID(), uint64(at), f.own[scratch], uint64(slot*each), uint64(n), signal)
		case kind < 82:
			is.what = "signal"
			o.model.signal(signal)
			is.op, err = f.remote.Signal(signal)
		case kind < 92:
			is.what, is.get, is.at = "get", n, at
			is.op, err = f.remote.Get(o.own[static].ID(), uint64(at), f.own[scratch], uint64(len(f.source)+slot*each), uint64(n))
		case kind < 96:
			return f.putShort(&is, slot*each, n)
		case kind < 98:
			is.what = "signal of a shared word"
			o.r.shared.want.Add(kind)
			is.op, err = f.remote.Signal(onesided.Signal{Window: o.r.shared.w.ID(), Do: onesided.SignalAdd, Value: kind})
		default:
			is.what = "flush"
			is.op, err = f.remote.Flush()
		}
		return f.issue(is, err)
	}))
}

// free returns a place in the scratch memory that no operation uses.
func (f *exchange) free() int {
	for slot := range f.Window {
		if !slices.ContainsFunc(f.ops, func(is issued) bool { return is.slot == slot }) {
			return slot
		}
	}
	panic("more operations are outstanding than may be")
}

// issue notes an operation that has begun.
func (f *exchange) issue(is issued, err error) error {
	if err != nil || is.op == 0 {
		return f.class(fmt.Errorf("%s: operation %d: %w", is.what, is.op, cmp.Or(err, errors.New("it did not begin"))))
	}
	f.ops = append(f.ops, is)
	return nil
}

// drawSignal draws a signal. Each makes its word larger, so that the words tell how many signals have changed them.
func (f *exchange) drawSignal() onesided.Signal {
	o := f.other()
	s := onesided.Signal{Window: o.own[signals].ID(), Do: onesided.SignalInc, Offset: 8 * f.draws.Uint64N(words)}
	o.model.mu.Lock()
	defer o.model.mu.Unlock()
	if s.Offset == 16 { // only set
		s.Do, s.Value = onesided.SignalSet, uint64(len(o.model.signals)+1)
	} else if f.draws.Chance(0.5) {
		s.Do, s.Value = onesided.SignalAdd, 1+f.draws.Uint64N(1<<40)
	}
	return s
}

// reap looks which operations are done.
func (f *exchange) reap() (moved bool, err error) {
	for k := 0; k < len(f.ops); {
		is := &f.ops[k]
		done, err := f.remote.Done(is.op)
		if err != nil && !(is.short != nil && is.short.closing && errors.Is(err, conn.ErrWindowGone)) {
			return moved, f.class(fmt.Errorf("%s, operation %d: %w", is.what, is.op, err))
		}
		if !done {
			k++
			continue
		}
		if is.put > 0 {
			f.other().model.putDone(is.put)
		}
		if err := f.check(is); err != nil {
			return moved, err
		}
		countOperation(is.what)
		f.ops = slices.Delete(f.ops, k, k+1)
		moved = true
	}
	return moved, nil
}

// check looks at what an operation has done here: the bytes of a get. The memory is used for something else then.
func (f *exchange) check(is *issued) error {
	each := len(f.source) / f.Window
	clear(f.source[is.slot*each:][:each]) // a late read would send zeros
	b := f.landing[is.slot*each:][:each]
	if is.get < 0 {
		if !zero(b) {
			return fmt.Errorf("%s, operation %d: bytes were written where no get is under way", is.what, is.op)
		}
		return nil
	}
	key := f.other().model.key
	for i := range is.get {
		if o := is.at + i; b[i] != byte(word(key, 0, o&^7)>>(8*(o&7))) {
			return fmt.Errorf("byte %d of %d of get %d is wrong", i, is.get, is.op)
		}
	}
	if !zero(b[is.get:]) {
		return fmt.Errorf("bytes behind get %d of %d bytes were written", is.op, is.get)
	}
	clear(b)
	return nil
}

// shorts opens and closes the short window of this side.
func (f *exchange) shorts() error {
	now := f.r.world.Bus.Now()
	switch s := f.short; {
	case s == nil && f.began < f.Operations && len(f.ended) < 4 && f.draws.Chance(0.02):
		s = &short{due: now + time.Duration(f.draws.LogUniform(10, 100_000))*time.Microsecond}
		var err error
		if s.mem, err = ibv.Alloc(shortLife); err != nil {
			return err
		}
		if s.w, err = f.r.windows().Register(lane.HostMemory, s.mem.Addr(), shortLife); err != nil {
			return f.class(err)
		}
		f.short = s
	case s != nil && now >= s.due:
		s.closing = true
		ended, err := s.w.Close()
		if err != nil {
			return f.class(err)
		}
		if ended {
			clear(s.mem.Bytes()[:shortLife])
			f.ended = append(f.ended, s)
			f.short = nil
		}
	}
	for _, s := range f.ended {
		if !zero(s.mem.Bytes()[:shortLife]) {
			return errors.New("a window was written after its end")
		}
	}
	return nil
}

// putShort puts into the other side's short window.
func (f *exchange) putShort(is *issued, from, n int) error {
	s := f.other().short
	is.what, is.short = "put into a short window", s
	n = min(n, shortLife)
	if s != nil {
		if _, ok := f.remote.Window(s.w.ID()); ok {
			var err error
			for i := range f.source[from:][:n] {
				f.source[from+i] = 0xee
			}
			is.op, err = f.remote.Put(s.w.ID(), 0, f.own[scratch], uint64(from), uint64(n))
			return f.issue(*is, err)
		}
	}
	return nil
}

// finish ends the side when all operations of both sides are done.
func (f *exchange) finish() (over bool, err error) {
	o := f.other()
	if f.began < f.Operations || len(f.ops) > 0 || f.short != nil {
		return false, nil
	}
	if !f.flushed {
		f.flushed = true
		last := onesided.Signal{Window: o.own[signals].ID(), Do: onesided.SignalSet, Offset: finished, Value: 1}
		err := f.r.timeless("last signal", func() error {
			op, err := f.remote.Signal(last)
			return f.issue(issued{op: op, what: "last signal", get: -1, slot: f.free()}, err)
		})
		return false, err
	}
	if w, err := f.wordAt(finished); err != nil || w == 0 {
		return false, err
	}
	if !f.done {
		if _, err := f.see(true); err != nil {
			return false, err
		}
		if n := len(f.model.signals); f.model.applied != n {
			return false, fmt.Errorf("%d signals were seen when the last of %d has come", f.model.applied, n)
		}
		f.done = true
	}
	f.over.Lock()
	defer f.over.Unlock()
	f.complete = true
	return o.complete, nil
}

func (f *exchange) close() error {
	if f.remote == nil {
		return errors.Join(f.r.failed("closeSend", f.r.net.CloseSend(f.send)), f.r.failed("closeRecv", f.r.net.CloseRecv(f.recv)))
	}
	return errors.Join(f.remote.Close(), f.r.failed("closeSend", f.r.net.CloseSend(f.send)), f.r.failed("closeRecv", f.r.net.CloseRecv(f.recv)))
}

// freeMemory frees the memory of the windows, which have ended.
func (f *exchange) freeMemory() error {
	var errs []error
	for _, b := range f.mem {
		if b != nil {
			errs = append(errs, b.free())
		}
	}
	if f.short != nil {
		f.ended = append(f.ended, f.short)
	}
	for _, s := range f.ended {
		errs = append(errs, s.mem.Free())
	}
	return errors.Join(errs...)
}

// where says how far the side is.
func (f *exchange) where() string {
	text := fmt.Sprintf("%v: %d of %d operations begun, complete %v", f, f.began, f.Operations, f.complete)
	for _, is := range f.ops {
		text += fmt.Sprintf(", %s %d", is.what, is.op)
	}
	return fmt.Sprintf("%s; %d of %d signals seen", text, f.model.applied, len(f.model.signals))
}
