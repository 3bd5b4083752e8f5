package transport

import "time"

// warnOnce logs the first warning about a subject, sayOnce the first news.
func (t *Transport) warnOnce(subject, text string) { t.once(t.log.Warn, subject, text) }
func (t *Transport) sayOnce(subject, text string)  { t.once(t.log.Info, subject, text) }

func (t *Transport) once(say func(string, ...any), subject, text string) {
	t.mu.Lock()
	again := t.warned[subject]
	t.warned[subject] = true
	t.mu.Unlock()
	if !again {
		say(text)
	}
}

// afresh is when the user is warned again of what happens again.
const afresh = 2 * time.Second

// again reports whether the user was warned of a subject less than that before; if not, that
// happens now.
func (t *Transport) again(subject string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if last, told := t.lately[subject]; told && now.Sub(last) < afresh {
		return true
	}
	t.lately[subject] = now
	return false
}
