package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"ncclmesh/ncclnet/gpudirect"
	"ncclmesh/transport"
	"ncclmesh/transport/lane/tcp"
)

// integer returns a parser of whole numbers, decimal, octal or hexadecimal as in C.
func integer(lo, hi int, field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 0, 64)
		if err != nil || n < int64(lo) || n > int64(hi) {
			return fmt.Errorf("want a whole number from %d to %d", lo, hi)
		}
		*field(c) = int(n)
		return nil
	}
}

// duration returns a parser of durations in a unit, with fractions.
func duration(unit time.Duration, field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		most := float64(24*time.Hour) / float64(unit)
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n > 0 && n <= most) {
			return fmt.Errorf("want a number above 0, up to %.0f, of units of %v", most, unit)
		}
		*field(c) = time.Duration(n * float64(unit))
		return nil
	}
}

func parseScale(c *Config, v string) error {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n > 0 && n <= 1000) {
		return errors.New("want a number above 0, up to 1000")
	}
	c.Transport.TimeScale = n
	return nil
}

// parseDataDirect accepts NCCL's values. NCCL lists a device once more for 2; here all ports are one device.
func parseDataDirect(v string) (off bool, err error) {
	switch v {
	case "0", "1", "2":
		return v == "0", nil
	}
	return false, errors.New("want 0, 1 or 2")
}

func parseOff(v string) (bool, error) {
	switch v {
	case "0":
		return true, nil
	case "1":
		return false, nil
	}
	return false, errors.New("want 0 or 1")
}

func parseTransport(v string) (string, error) {
	switch v = strings.ToLower(v); v {
	case transport.TransportAuto, transport.TransportRDMA, transport.TransportTCP:
		return v, nil
	}
	return "", errors.New("want auto, rdma or tcp")
}

func parseGDR(v string) (gpudirect.Setting, error) {
	switch strings.ToLower(v) {
	case "auto":
		return gpudirect.Auto, nil
	case "0":
		return gpudirect.Off, nil
	case "1":
		return gpudirect.On, nil
	}
	return gpudirect.Auto, errors.New("want auto, 0 or 1")
}

func parseRelay(v string) (string, error) {
	switch v = strings.ToLower(v); v {
	case transport.RelayAuto, transport.RelayOff, transport.RelayOnly:
		return v, nil
	}
	return "", errors.New("want auto, 0 or only")
}

func parseCheck(v string) (string, error) {
	switch v = strings.ToLower(v); v {
	case tcp.CheckAuto, tcp.CheckOff, tcp.CheckOn:
		return v, nil
	}
	return "", errors.New("want auto, 0 or 1")
}

func parseFamily(v string) (int, error) {
	switch strings.ToUpper(v) {
	case "AF_INET":
		return 4, nil
	case "AF_INET6":
		return 6, nil
	}
	return 0, errors.New("want AF_INET or AF_INET6")
}

func parsePrefix(v string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		return netip.Prefix{}, errors.New("want an address and a prefix length, as in 10.0.0.0/8 or fd00::/8")
	}
	return p, nil
}

// MinKey is the minimum length of NCCL_MESH_KEY in characters. The MACs of neighbour discovery let any machine on a
// cable check guesses of the key offline, so that a short key gives no protection.
const MinKey = 16

// MakeKey is a command that prints a good key.
const MakeKey = "openssl rand -base64 24"

// CheckKey returns an error that tells what is accepted if a key is too short. The error does not contain the key.
func CheckKey(key string) error {
	if n := utf8.RuneCountInString(key); n < MinKey {
		return fmt.Errorf("it has %d characters, and anybody at a cable could guess it: want %d or more, the same on all nodes, as this command makes them: %s", n, MinKey, MakeKey)
	}
	return nil
}

func parseLevel(v string) (slog.Level, error) {
	switch strings.ToLower(v) {
	case "0", "warn":
		return slog.LevelWarn, nil
	case "1", "info":
		return slog.LevelInfo, nil
	case "2", "debug":
		return slog.LevelDebug, nil
	case "3", "trace":
		return LevelTrace, nil
	}
	return 0, errors.New("want warn, info, debug or trace, or 0 to 3")
}

func splitList(v string) []string {
	var list []string
	for _, s := range strings.Split(v, ",") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}
