package mesh

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a scenario.
const (
	mostMachines = 64
	mostCables   = 251
	mostMessages = 1_000_000
	mostWindow   = 256
	mostRanges   = 1000
	longestTime  = 24 * time.Hour
	started      = 60 * time.Millisecond // by when all processes have started
)

// Parse reads the text of a scenario. What a line names must stand before it. The error of a mistake says the line and what is
// accepted.
func Parse(text string) (*Scenario, error) {
	p := &parser{s: &Scenario{Settings: map[string]string{}}}
	for k, l := range strings.Split(text, "\n") {
		if err := p.line(strings.TrimSpace(l)); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", k+1, strings.TrimSpace(l), err)
		}
	}
	for what, missing := range map[string]bool{"seed": !p.seed, "machine": len(p.s.Machines) == 0, "connect": len(p.s.Connections)+len(p.s.Exchanges) == 0, "expect end": p.s.Expect.Within == 0} {
		if missing {
			p.missing = append(p.missing, what)
		}
	}
	if slices.Sort(p.missing); p.missing != nil {
		return nil, fmt.Errorf("the scenario has no line that begins with %q", p.missing[0])
	}
	for _, m := range p.s.Expect.Deaths {
		if !p.s.kills(m) {
			return nil, fmt.Errorf("the death of %s is expected, but nothing kills it: add a line like \"at 1s machine %s killed\"", m, m)
		}
	}
	return p.s, nil
}

// Check returns an error unless the scenario has a text that reads as the scenario.
func (s *Scenario) Check() error {
	text := s.String()
	again, err := Parse(text)
	if err == nil && again.String() != text {
		err = errors.New("its text is read otherwise than it was written")
	}
	if err != nil {
		return fmt.Errorf("the scenario is none: %w\n%s", err, text)
	}
	if !reflect.DeepEqual(s.clone(), again.clone()) {
		return fmt.Errorf("the scenario holds what its text does not say:\n%+v\n%+v", s, again)
	}
	return nil
}

// deadly reports whether the fault kills the processes of its machine.
func (f *Fault) deadly() bool { return f.Cable < 0 && (f.Kind == killed || f.Kind == unpowered) }

// kills reports whether a fault of the scenario kills the processes of a machine.
func (s *Scenario) kills(machine string) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.deadly() && f.Machine == machine })
}

// A parser reads a scenario.
type parser struct {
	s       *Scenario
	begun   bool // a line that is no comment was read
	seed    bool
	missing []string
	words   []string // of the line that are not read so far
}

// verbs are what a line may begin with.
var parsers = []struct {
	verb string
	read func(p *parser) error
}{
	{"seed", (*parser).readSeed},
	{"machine", (*parser).readMachine},
	{"cable", (*parser).readCable},
	{"management", (*parser).readManagement},
	{"connect", (*parser).readConnection},
	{"exchange", (*parser).readExchange},
	{"at", (*parser).readFault},
	{"expect", (*parser).readExpectation},
}

// line reads a line.
func (p *parser) line(l string) error {
	if comment, ok := strings.CutPrefix(l, "#"); ok {
		if !p.begun {
			p.s.Notes = append(p.s.Notes, strings.TrimSpace(comment))
		}
		return nil
	}
	if l == "" {
		return nil
	}
	p.begun = true
	if rest, ok := strings.CutPrefix(l, "set "); ok {
		return p.readSetting(strings.TrimSpace(rest))
	}
	p.words = strings.Fields(l)
	verb := p.word()
	var known []string
	for _, r := range parsers {
		if r.verb == verb {
			if err := r.read(p); err != nil {
				return err
			}
			if len(p.words) > 0 {
				return fmt.Errorf("%q is too much", strings.Join(p.words, " "))
			}
			return nil
		}
		known = append(known, r.verb)
	}
	return fmt.Errorf("a line begins with %s or set", strings.Join(known, ", "))
}

// word takes the next word, "" where there is none.
func (p *parser) word() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// take takes the next words if they are those, and reports whether they were.
func (p *parser) take(words string) bool {
	want := strings.Fields(words)
	if len(p.words) < len(want) || !slices.Equal(p.words[:len(want)], want) {
		return false
	}
	p.words = p.words[len(want):]
	return true
}

// number takes a whole number of a range.
func (p *parser) number(what string, low, high int) (int, error) {
	w := p.word()
	n, err := strconv.Atoi(w)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is no %s: accepted is a number from %d to %d", w, what, low, high)
	}
	return n, nil
}

// duration takes a duration of at least low.
func (p *parser) duration(low time.Duration) (time.Duration, error) {
	return readDuration(p.word(), low)
}

func readDuration(w string, low time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(w)
	if err != nil || d < low || d > longestTime {
		return 0, fmt.Errorf("%q is no time: accepted is one like 1.5s or 300ms, from %v to %v", w, low, longestTime)
	}
	return d, nil
}

// known takes the name of a machine that is declared.
func (p *parser) known() (string, error) {
	w := p.word()
	if p.s.machine(w) < 0 {
		return "", fmt.Errorf("%q is no machine: there are %s", w, strings.Join(p.s.Machines, ", "))
	}
	return w, nil
}

// pair takes the names of two machines that differ.
func (p *parser) pair() (from, to string, err error) {
	if from, err = p.known(); err == nil {
		to, err = p.known()
	}
	if err == nil && from == to {
		err = fmt.Errorf("both ends are %s: accepted are two machines", from)
	}
	return from, to, err
}

func (p *parser) readSeed() error {
	w := p.word()
	n, err := strconv.ParseUint(w, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no seed: accepted is a whole number", w)
	case p.seed:
		return errors.New("a second seed: accepted is one")
	}
	p.s.Seed, p.seed = n, true
	return nil
}

func (p *parser) readMachine() error {
	w := p.word()
	switch {
	case len(w) != 2 || strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return fmt.Errorf("%q is no name of a machine: accepted are two small letters or digits, such as na", w)
	case p.s.machine(w) >= 0:
		return fmt.Errorf("a second machine %s: accepted is one of a name", w)
	case p.s.Management:
		return errors.New("a machine after the management network: accepted are machines before it")
	case len(p.s.Machines) == mostMachines:
		return fmt.Errorf("too many machines: accepted are %d", mostMachines)
	}
	p.s.Machines = append(p.s.Machines, w)
	return nil
}

func (p *parser) readCable() error {
	c := Wire{Speed: fast}
	var err error
	if c.Number, err = p.number("number of a cable", 0, mostCables-1); err != nil {
		return err
	}
	if p.s.wire(c.Number) != nil {
		return fmt.Errorf("a second cable %d: accepted is one of a number", c.Number)
	}
	if c.From, c.To, err = p.pair(); err != nil {
		return err
	}
	switch w := p.word(); w {
	case "rdma":
		c.RDMA = true
	case "tcp":
	default:
		return fmt.Errorf("%q is neither rdma nor tcp", w)
	}
	rate, err := speeds.read(p.word())
	if err != nil {
		return err
	}
	c.Speed.Rate = rate / 8
	if p.take("latency") {
		if c.Speed.Latency, err = p.duration(0); err != nil {
			return err
		}
	}
	if p.take("jitter") {
		if c.Speed.Jitter, err = p.duration(0); err != nil {
			return err
		}
	}
	p.s.Cables = append(p.s.Cables, c)
	return nil
}

func (p *parser) readManagement() error {
	if !p.take("network") {
		return errors.New("accepted is: management network")
	}
	p.s.Management = true
	return nil
}

func (p *parser) readSetting(l string) error {
	name, value, ok := strings.Cut(l, "=")
	switch _, again := p.s.Settings[name]; {
	case !ok || name == "" || name != strings.TrimSpace(name) || value != strings.TrimSpace(value):
		return errors.New("accepted is a line like: set NCCL_MESH_TRANSPORT=rdma")
	case again:
		return fmt.Errorf("a second value of %s: accepted is one", name)
	}
	p.s.Settings[name] = value
	return nil
}

func (p *parser) readConnection() error {
	c := Traffic(0, 0)
	var err error
	if c.From, c.To, err = p.pair(); err != nil {
		return err
	}
	if c.Messages, err = p.number("number of messages", 1, mostMessages); err != nil {
		return err
	}
	if !p.take("messages to") {
		return errors.New("accepted is a line like: connect na nb 200 messages to 1MiB")
	}
	if err := p.amounts(&c.Largest, &c.Pauses, &c.Window); err != nil {
		return err
	}
	if p.take("group") {
		if c.Group, err = p.number("group", 1, group); err != nil {
			return err
		}
	}
	if p.take("ranges") {
		if c.Ranges, err = p.number("number of ranges", 0, mostRanges); err != nil {
			return err
		}
	}
	if p.take("memory") {
		if c.Memory = p.word(); !slices.Contains(memories, c.Memory) {
			return fmt.Errorf("%q is no memory: accepted are %s", c.Memory, strings.Join(memories, ", "))
		}
	}
	if c.Group > c.Window {
		return fmt.Errorf("a group of %d is larger than the window of %d: accepted is a smaller one", c.Group, c.Window)
	}
	p.s.Connections = append(p.s.Connections, c)
	return nil
}

// amounts takes the size of the largest message or operation, the share of pauses, and the window.
func (p *parser) amounts(most, pauses, window *int) error {
	largest, err := sizes.read(p.word())
	if err != nil {
		return err
	}
	*most = int(largest)
	if p.take("pauses") {
		w := p.word()
		n, err := strconv.Atoi(strings.TrimSuffix(w, "%"))
		if err != nil || n < 0 || n > 100 || !strings.HasSuffix(w, "%") {
			return fmt.Errorf("%q is no share of messages: accepted is 0%% to 100%%", w)
		}
		*pauses = n
	}
	if p.take("window") {
		if *window, err = p.number("window", 1, mostWindow); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) readExchange() error {
	x := Exchange{Pauses: pauses, Window: window}
	var err error
	if x.From, x.To, err = p.pair(); err != nil {
		return err
	}
	if x.Operations, err = p.number("number of operations", 1, mostMessages); err != nil {
		return err
	}
	if !p.take("operations to") {
		return errors.New("accepted is a line like: exchange na nb 200 operations to 64KiB")
	}
	if err := p.amounts(&x.Largest, &x.Pauses, &x.Window); err != nil {
		return err
	}
	if p.take("memory") {
		if x.Memory = p.word(); x.Memory != GPUMemory {
			return fmt.Errorf("%q is no memory of an exchange: accepted is %s", x.Memory, GPUMemory)
		}
	}
	p.s.Exchanges = append(p.s.Exchanges, x)
	return nil
}

// moment takes a time, of the traffic or not.
func (p *parser) moment() (at time.Duration, traffic bool, err error) {
	w := p.word()
	w, traffic = strings.CutPrefix(w, "traffic+")
	at, err = readDuration(w, 0)
	return at, traffic, err
}

func (p *parser) readFault() error {
	f := Fault{Cable: -1}
	err := p.times(&f)
	if err != nil {
		return err
	}
	var c *Wire
	switch {
	case p.take("cable"):
		if f.Cable, err = p.number("number of a cable", 0, mostCables-1); err != nil {
			return err
		}
		if c = p.s.wire(f.Cable); c == nil {
			return fmt.Errorf("there is no cable %d", f.Cable)
		}
	case p.take("machine"):
		if f.Machine, err = p.known(); err != nil {
			return err
		}
	default:
		return errors.New("accepted is a line like: at 1.2s for 300ms cable 0 cut")
	}
	k, err := p.kind(c == nil)
	if err != nil {
		return err
	}
	f.Kind = k.name
	if k.target == adapterEnd && !c.RDMA {
		return fmt.Errorf("cable %d has no RDMA, and %q needs it", c.Number, k.name)
	}
	if k.ended() {
		if !p.take("at") {
			return fmt.Errorf("%q needs an end: accepted is at %s or at %s", k.name, c.From, c.To)
		}
		if f.Machine = p.word(); f.Machine != c.From && f.Machine != c.To {
			return fmt.Errorf("%q is no end of cable %d: accepted is %s or %s", f.Machine, c.Number, c.From, c.To)
		}
	}
	if u := k.amount.unit; u != nil {
		if f.Amount, err = u.read(p.word()); err != nil {
			return err
		}
	}
	if f.deadly() && (f.For > 0 || !f.Traffic && f.At < started) {
		return fmt.Errorf("a process dies for good, and not before %v, when all have started", started)
	}
	p.s.Faults = append(p.s.Faults, f)
	return nil
}

// times takes when a fault begins and ends.
func (p *parser) times(f *Fault) (err error) {
	if f.At, f.Traffic, err = p.moment(); err != nil {
		return err
	}
	switch {
	case p.take("for"):
		f.For, err = p.duration(1)
	case p.take("until"):
		f.For, f.Until, err = p.moment()
		if err == nil && (f.Traffic || !f.Until || f.For == 0) {
			err = errors.New("accepted after until is traffic+ and a time above 0, of a fault that begins before the traffic")
		}
	}
	return err
}

// kind takes the name of a kind of fault, of machines or of cables.
func (p *parser) kind(ofMachine bool) (*kind, error) {
	var names []string
	for i := range kinds {
		if (kinds[i].target == wholeMachine) != ofMachine {
			continue
		}
		if p.take(kinds[i].name) {
			return &kinds[i], nil
		}
		names = append(names, kinds[i].name)
	}
	return nil, fmt.Errorf("%q is no fault: accepted are %s", strings.Join(p.words, " "), strings.Join(names, ", "))
}

func (p *parser) readExpectation() error {
	e := &p.s.Expect
	var err error
	switch {
	case p.take("death of"):
		var m string
		if m, err = p.known(); err != nil {
			return err
		}
		e.Deaths = append(e.Deaths, m)
	case p.take("calm"):
		e.Calm = true
	case p.take("all grants"):
		e.Grants = true
	case p.take("RDMA"):
		e.RDMA = true
	case p.take("end within"):
		e.Within, err = p.duration(time.Millisecond)
	case p.take("healed within"):
		e.Healed, err = p.duration(time.Millisecond)
	default:
		err = errors.New("accepted is: expect death of MACHINE, expect calm, expect all grants, expect RDMA, expect end within TIME, expect healed within TIME")
	}
	return err
}
