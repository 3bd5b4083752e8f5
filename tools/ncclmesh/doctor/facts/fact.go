package facts

// NeedsRoot begins why something is not known that root would see.
const NeedsRoot = "needs root"

// A Fact is a value, or why there is none. Its zero value is not known.
type Fact[T any] struct {
	Value *T     `json:"value,omitempty"`
	Why   string `json:"why,omitempty"` // there is no value
}

// Known is a fact with a value.
func Known[T any](v T) Fact[T] { return Fact[T]{Value: &v} }

// Unknown is a fact without one.
func Unknown[T any](why string) Fact[T] { return Fact[T]{Why: why} }

// Of is what a call has returned.
func Of[T any](v T, err error) Fact[T] {
	if err != nil {
		return Unknown[T](err.Error())
	}
	return Known(v)
}

// Get returns the value, and whether there is one.
func (f Fact[T]) Get() (v T, ok bool) {
	if f.Value == nil {
		return v, false
	}
	return *f.Value, true
}

// Because says why there is no value.
func (f Fact[T]) Because() string {
	if f.Why == "" {
		return "not looked at"
	}
	return f.Why
}
