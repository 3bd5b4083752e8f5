// Command abigen writes the Go mirrors of the C structures and constants of libibverbs that package ibv uses.
//
// A C compiler reads the installed <infiniband/verbs.h> for every architecture and leaves DWARF behind; abigen takes
// sizes, offsets and enumerators from there and nothing else. What is mirrored, and under which Go name, is the reviewed
// table in table.go. A name that the header does not have ends the run, as does a structure that has outgrown its mirror.
//
// The Go files are the same for every release of rdma-core, or abigen refuses to write them. The layouts as read are kept
// as JSON for one old and one recent release, so that the tests of package ibv need neither compiler nor header:
//
//	go run -C tools ./abigen -go ../ibv -layout ../ibv/testdata/layout-44.json
//	go run -C tools ./abigen -root DIR -layout ../ibv/testdata/layout-65.json    # DIR: where the packages of that release are unpacked
package main
