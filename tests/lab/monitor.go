package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// A monitor is the emulator's control connection (QMP): JSON requests and answers, with events in between.
type monitor struct {
	mu  sync.Mutex
	c   net.Conn
	dec *json.Decoder
}

type qmpCommand struct {
	Execute   string         `json:"execute"`
	Arguments map[string]any `json:"arguments,omitempty"`
}

type qmpMessage struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

func newMonitor(c net.Conn) (*monitor, error) {
	q := &monitor{c: c, dec: json.NewDecoder(c)}
	var greeting map[string]any
	if err := q.dec.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	return q, q.execute("qmp_capabilities", nil)
}

func (q *monitor) setLink(device string, up bool) error {
	return q.execute("set_link", map[string]any{"name": device, "up": up})
}

func (q *monitor) execute(command string, args map[string]any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	_ = q.c.SetDeadline(time.Now().Add(30 * time.Second))
	if err := json.NewEncoder(q.c).Encode(qmpCommand{command, args}); err != nil {
		return fmt.Errorf("monitor: %s: %w", command, err)
	}
	for {
		var m qmpMessage
		if err := q.dec.Decode(&m); err != nil {
			return fmt.Errorf("monitor: %s: %w", command, err)
		}
		switch {
		case m.Error != nil:
			return fmt.Errorf("monitor: %s: %s", command, m.Error.Desc)
		case m.Return != nil:
			return nil
		}
	}
}
