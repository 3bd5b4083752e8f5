package mesh

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A unit is what the amount of a fault is measured in.
type unit struct {
	example   string
	low, high int64 // smallest and largest amount
	format    func(n int64) string
	parse     func(text string) (int64, error)
}

var (
	delays = &unit{"50ms", 0, int64(time.Hour), func(n int64) string { return time.Duration(n).String() }, func(text string) (int64, error) {
		d, err := time.ParseDuration(text)
		return int64(d), err
	}}
	rates  = &unit{"37MB/s", 1, 1e12, scaled(decimalSteps, "/s").format, scaled(decimalSteps, "/s").parse}
	counts = &unit{"17", 0, 1e9, func(n int64) string { return strconv.FormatInt(n, 10) }, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }}
	shares = &unit{"12.5%", 0, 1e6, func(n int64) string { return strconv.FormatFloat(float64(n)/1e4, 'f', -1, 64) + "%" }, func(text string) (int64, error) { // in millionths
		number, percent := strings.CutSuffix(text, "%")
		if !percent {
			return 0, fmt.Errorf("%q has no %%", text)
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return 0, fmt.Errorf("%q lies not between 0%% and 100%%", text)
		}
		return int64(math.Round(v * 1e4)), nil
	}}
	sizes  = &unit{"1MiB", 0, 64 << 20, scaled(byteSteps, "").format, scaled(byteSteps, "").parse}
	speeds = &unit{"100Gbps", 1e6, 10e12, scaled(bitSteps, "").format, scaled(bitSteps, "").parse} // in bits a second
)

// read returns the amount that a text says, and refuses one that is out of the unit's bounds.
func (u *unit) read(text string) (int64, error) {
	n, err := u.parse(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no amount like %s", text, u.example)
	case n < u.low || n > u.high:
		return 0, fmt.Errorf("%q is out of bounds: accepted is %s to %s", text, u.format(u.low), u.format(u.high))
	}
	return n, nil
}

// A step is a name for a multiple of a unit.
type step struct {
	name  string
	times int64
}

// The steps of a unit, the largest first.
var (
	decimalSteps = []step{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}
	byteSteps    = []step{{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
	bitSteps     = []step{{"Gbps", 1e9}, {"Mbps", 1e6}}
)

// A scale writes whole numbers of the largest step that divides them.
type scale struct {
	steps []step
	after string
}

func scaled(steps []step, after string) scale { return scale{steps, after} }

func (s scale) format(n int64) string {
	for _, t := range s.steps {
		if n%t.times == 0 && (n != 0 || t.times == 1) {
			return strconv.FormatInt(n/t.times, 10) + t.name + s.after
		}
	}
	return strconv.FormatInt(n, 10) + "?"
}

func (s scale) parse(text string) (int64, error) {
	for _, t := range s.steps {
		number, ok := strings.CutSuffix(text, t.name+s.after)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/t.times {
			return 0, fmt.Errorf("%q is no whole number", number)
		}
		return n * t.times, nil
	}
	return 0, fmt.Errorf("%q has no unit", text)
}
