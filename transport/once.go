package transport

import "time"

// warnOnce logs a warning, and infoOnce an information, if it is the first on its subject.
func (t *Transport) warnOnce(subject, text string) { t.once(t.log.Warn, subject, text) }
func (t *Transport) infoOnce(subject, text string) { t.once(t.log.Info, subject, text) }

func (t *Transport) once(say func(string, ...any), subject, text string) {
	t.mu.Lock()
	known := t.warned[subject]
	t.warned[subject] = true
	t.mu.Unlock()
	if !known {
		say(text)
	}
}

// warnInterval is the time after which a repeated event is logged again.
const warnInterval = 2 * time.Second

// recently reports whether the user was warned about a subject within warnInterval. If not, it records a warning now.
func (t *Transport) recently(subject string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if last, warned := t.lastWarned[subject]; warned && now.Sub(last) < warnInterval {
		return true
	}
	t.lastWarned[subject] = now
	return false
}
