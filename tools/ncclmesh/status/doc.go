// Package status looks at what running processes count (packages stats and window of the transport), and says it to people
// and machines: a [Report], which is text or JSON, and an [Exposition] for Prometheus.
//
// What it shows in rows are cables, as that is what people plug in: all ways to a peer over the ports of one connector.
package status
