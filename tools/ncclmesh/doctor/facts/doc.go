// Package facts is what is known of the nodes of a mesh when it is judged: values that
// were read or tried on a node, once, and travel as JSON.
//
// Nothing here judges. Whatever could not be found out says why; what an older command
// at the other end does not send is unknown too.
package facts
