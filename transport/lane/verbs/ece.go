package verbs

import (
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
)

// Enhanced connection establishment (ECE): the adapters of the two ends of a connection agree on options beyond the
// standard, as NCCL's own transport lets them.
//
//	the end that offers                       the end that answers
//
//	INIT, ibv_query_ece: what it can do
//	                    ───── its half ────►
//	                                          INIT, ibv_set_ece: what was offered
//	                                          RTR, RTS, ibv_query_ece: what remains of it
//	                    ◄──── its half ─────
//	ibv_set_ece: what remains, RTR, RTS
//
// The sender of a connection offers, and at each hop of a circuit the process nearer to it. An end does without where its
// library or its adapter lacks ECE, where its user says so, and where the other end has adapters of another vendor, because
// the vendor gives the options their meaning. The other end hears of that and does without too. Any other error of a verb
// fails the lane, and a port's first such error is a warning.

// offeredECE returns what the adapter of a queue pair in INIT can do, for the peer; the zero value if this end does
// without.
func (p *Port) offeredECE(qp *ibv.QP) (handshake.ECE, error) {
	if p.opts.NoECE {
		return handshake.ECE{}, nil
	}
	return p.queryECE(qp)
}

// setECE sets the options that the peer's half names, if both ends have some. It returns whether it did.
//
// Preconditions: the queue pair is in INIT.
func (p *Port) setECE(qp *ibv.QP, own, peer handshake.ECE) (bool, error) {
	if own.Vendor == 0 || own.Vendor != peer.Vendor {
		return false, nil
	}
	err := qp.SetECE(&ibv.ECE{VendorID: peer.Vendor, Options: peer.Options})
	if errors.Is(err, ibv.ErrNotSupported) { // the provider library knows ECE, the adapter or the kernel does not
		return false, nil
	}
	return err == nil, p.withoutECE(err)
}

// withoutECE adds to an error of a verb of ECE how to do without, and warns of the port's first one.
func (p *Port) withoutECE(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w; set NCCL_IB_ECE_ENABLE=0 on either node to do without these options", err)
	p.eceWarning.Do(func() { p.opts.Log.Warn(fmt.Sprintf("%v: lanes fail: %v", p, err)) })
	return err
}

// queryECE returns the options of a queue pair as the peer needs them: before options are set what the adapter can do, and
// in RTS what is in effect. It returns the zero value if there are none.
func (p *Port) queryECE(qp *ibv.QP) (handshake.ECE, error) {
	ece, err := qp.QueryECE()
	switch {
	case errors.Is(err, ibv.ErrNotSupported):
		return handshake.ECE{}, nil
	case err != nil:
		return handshake.ECE{}, p.withoutECE(err)
	case ece.CompMask != 0: // fields that are not known here
		return handshake.ECE{}, nil
	}
	if ece.VendorID == 0 {
		ece.Options = 0
	}
	return handshake.ECE{Vendor: ece.VendorID, Options: ece.Options}, nil
}
