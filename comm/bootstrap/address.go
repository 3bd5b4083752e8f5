package bootstrap

import (
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"ncclmesh/transport/accept"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/sock"
)

// Ranks that join by an address get the ID of the job from rank 0, which listens there until all have joined. Both sides must
// have the same key, NCCL_MESH_KEY, because the ID lets its bearer write to the memory of all ranks:
//
//	rank 0                                   another rank
//	magic 4, nonce 32                   ──►
//	                                    ◄──  nonce 32, MAC of both nonces 32
//	status 1, sealed ID 144             ──►
//
// The MAC and the seal (AES-256-GCM) use keys that follow from the key and, for the seal, from the nonces, so that a third
// party that records the exchange learns nothing, and a recorded answer is of no use later.
const (
	addressMagic = "NMJ1"
	nonceSize    = 32
	sealedSize   = len(ID{}) + 16

	statusOK  = 0 // the sealed ID follows
	statusKey = 1 // the MAC is wrong
)

const (
	maxPending   = 64 // connections at once that have not authenticated
	maxPerSource = 16

	helloTimeout = 10 * time.Second // for one exchange
	redialPause  = 50 * time.Millisecond
)

// JoinAddress joins a job by the address and port at which the process of rank 0 listens, "address:port". Rank 0 makes the root
// of the job in its own process. Otherwise it does what Join does.
func (h *Host) JoinAddress(address string, rank, size int, timeout time.Duration) (*Member, error) {
	if h.Key == "" {
		return nil, fmt.Errorf("%w: joining by an address needs a secret, so that nobody else can join: set NCCL_MESH_KEY to the same value on all nodes, or pass a unique id to all ranks instead", fault.ErrUsage)
	}
	ctx, cancel := h.Clock.WithTimeout(context.Background(), timeout)
	defer cancel()
	at, err := h.resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	if rank != 0 {
		id, err := h.fetchID(ctx, at)
		if err != nil {
			return nil, fmt.Errorf("rank %d cannot join at %s: %w", rank, address, err)
		}
		return h.Join(id, rank, size, timeout)
	}
	if size < 1 || size > MaxRanks {
		return nil, fmt.Errorf("%w: a job of %d ranks: there may be 1 to %d", fault.ErrUsage, size, MaxRanks)
	}
	root, err := h.NewRoot(size)
	if err != nil {
		return nil, err
	}
	server, err := h.listenAt(at, root.ID())
	if err != nil {
		root.Close()
		return nil, err
	}
	defer server.close()
	m, err := h.Join(root.ID(), 0, size, timeout)
	if err != nil {
		root.Close()
	}
	return m, err
}

// resolve returns the address and port that a text names.
func (h *Host) resolve(ctx context.Context, address string) (at netip.AddrPort, err error) {
	name, service, err := net.SplitHostPort(address)
	if err != nil {
		return at, fmt.Errorf("%w: address %q: want address:port, as in 10.0.0.1:5000 or [fd00::1]:5000", fault.ErrUsage, address)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return at, fmt.Errorf("%w: address %q: the port is %q, want a number from 1 to 65535", fault.ErrUsage, address, service)
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return netip.AddrPortFrom(a.Unmap(), uint16(port)), nil
	}
	if h.Lookup == nil {
		return at, fmt.Errorf("%w: address %q: %q is not an IP address", fault.ErrUsage, address, name)
	}
	found, err := h.Lookup(ctx, name)
	if err == nil && len(found) == 0 {
		err = errors.New("the name has none")
	}
	if err != nil {
		return at, fmt.Errorf("%w: address %q: no address of %q is known: %w", fault.ErrUsage, address, name, err)
	}
	return netip.AddrPortFrom(found[0].Unmap(), uint16(port)), nil
}

// expand returns the key for a purpose. Errors are impossible, because the length is.
func (h *Host) expand(salt []byte, purpose string) []byte {
	k, _ := hkdf.Key(sha256.New, []byte(h.Key), salt, "ncclmesh join by address: "+purpose, sha256.Size)
	return k
}

// mac returns the MAC by which a rank shows that it has the key.
func (h *Host) mac(nonces []byte) []byte {
	m := hmac.New(sha256.New, h.expand(nil, "request"))
	m.Write(nonces)
	return m.Sum(nil)
}

// sealID returns the cipher of an ID. It is used for one ID only, because its key follows from the nonces of both sides.
func (h *Host) sealID(nonces []byte) cipher.AEAD { return newGCM(h.expand(nonces, "answer")) }

// An idServer gives the ID of a job to ranks that have the key.
type idServer struct {
	host     *Host
	id       ID
	acceptor *accept.Acceptor
}

// reasonKey is why a connection is refused, as counted and logged.
const reasonKey = "another NCCL_MESH_KEY, or no rank of a job"

// listenAt starts to give the ID to ranks that connect to an address of this machine.
func (h *Host) listenAt(at netip.AddrPort, id ID) (*idServer, error) {
	l, err := sock.On(h.Network).Listen(at, "", sock.PortRange{})
	if err != nil {
		return nil, fmt.Errorf("%w: rank 0 cannot listen at %v, which has to be an address of its own node, with a port that no other job uses: %w", fault.ErrUsage, at, err)
	}
	s := &idServer{host: h, id: id}
	s.acceptor = accept.New(accept.Config{
		Name: "address of rank 0", Timeout: helloTimeout, MaxPending: maxPending, PerSource: maxPerSource,
		Clock: h.Clock, Random: h.Random, Log: h.Log, Handshake: s.serve,
	})
	return s, s.acceptor.Serve(l)
}

// serve gives the ID to one rank.
func (s *idServer) serve(c *accept.Conn) error {
	nonces := make([]byte, 2*nonceSize)
	s.host.Random.For(c.Source).Fill(nonces[:nonceSize], "nonce of rank 0")
	if _, err := c.Conn.Write(append([]byte(addressMagic), nonces[:nonceSize]...)); err != nil {
		return err
	}
	var request [nonceSize + sha256.Size]byte
	if _, err := io.ReadFull(c.Conn, request[:]); err != nil {
		return err
	}
	if err := c.HelloRead(); err != nil {
		return err
	}
	copy(nonces[nonceSize:], request[:])
	if !hmac.Equal(s.host.mac(nonces), request[nonceSize:]) {
		return &accept.Refusal{Reason: reasonKey, Reject: []byte{statusKey}}
	}
	seal := s.host.sealID(nonces)
	if _, err := c.Conn.Write(seal.Seal([]byte{statusOK}, make([]byte, seal.NonceSize()), s.id[:], nil)); err != nil {
		return err
	}
	return c.Conn.Close()
}

// close stops the server. Nothing is lost with its connections.
func (s *idServer) close() { _ = s.acceptor.Close() }

// errKey tells that rank 0 does not have the same key.
var errKey = errors.New("NCCL_MESH_KEY is not the same there")

// fetchID gets the ID from rank 0. It tries again while nobody listens at the address, until ctx ends.
func (h *Host) fetchID(ctx context.Context, at netip.AddrPort) (ID, error) {
	for {
		id, err := h.ask(ctx, at)
		switch {
		case err == nil:
			return id, nil
		case errors.Is(err, fault.ErrUsage), errors.Is(err, fault.ErrProtocol):
			return id, err
		case !h.Clock.Pause(ctx, redialPause):
			if errors.Is(err, syscall.ECONNREFUSED) {
				return id, fmt.Errorf("%w: nobody listens there: rank 0 has not started, or its time-out has passed: %w", fault.ErrUnreachable, err)
			}
			return id, fmt.Errorf("%w: rank 0 does not answer: %w", fault.ErrUnreachable, err)
		}
	}
}

// ask makes one attempt to get the ID.
func (h *Host) ask(ctx context.Context, at netip.AddrPort) (id ID, err error) {
	c, err := sock.On(h.Network).Dial(ctx, sock.From{}, at)
	if err != nil {
		return id, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return id, err
	}
	var hello [len(addressMagic) + nonceSize]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return id, err
	}
	if string(hello[:len(addressMagic)]) != addressMagic {
		return id, fmt.Errorf("%w: another program than rank 0 listens there", fault.ErrUsage)
	}
	nonces := append(hello[len(addressMagic):], make([]byte, nonceSize)...)
	h.Random.For(c.Local()).Fill(nonces[nonceSize:], "nonce of a rank")
	if _, err := c.Write(append(nonces[nonceSize:len(nonces):len(nonces)], h.mac(nonces)...)); err != nil {
		return id, err
	}
	var answer [1 + sealedSize]byte
	if _, err := io.ReadFull(c, answer[:1]); err != nil {
		return id, err
	}
	if answer[0] != statusOK {
		return id, fmt.Errorf("%w: %w; set the same value on all nodes", fault.ErrUsage, errKey)
	}
	if _, err := io.ReadFull(c, answer[1:]); err != nil {
		return id, err
	}
	seal := h.sealID(nonces)
	plain, err := seal.Open(nil, make([]byte, seal.NonceSize()), answer[1:], nil)
	if err != nil {
		return id, fmt.Errorf("%w: %w: its answer cannot be opened", fault.ErrProtocol, errKey)
	}
	return ID(plain), nil
}
