// Package printable makes text that another machine or process sent fit for a terminal, a log and a report: one line,
// of limited length, without characters that move the cursor, hide text or change its order.
package printable
