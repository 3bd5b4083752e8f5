package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ncclnet/config"
)

const (
	unreadBegin = "<!-- unread:begin -->\n"
	unreadEnd   = "<!-- unread:end -->"
)

// section cuts a file at two lines of it.
func section(t *testing.T, path, begin, end string) (before, between, after string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no line %q", path, strings.TrimSpace(begin))
	}
	between, after, ok = strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no line %q after it", path, end)
	}
	return before, between, after
}

// ofNetIB is what NCCL 2.29.7 reads in src/transport/net_ib, but for what belongs to its GIN.
var ofNetIB = []string{
	"NCCL_GDR_FLUSH_DISABLE",
	"NCCL_IB_ADAPTIVE_ROUTING",
	"NCCL_IB_ADDR_FAMILY",
	"NCCL_IB_ADDR_RANGE",
	"NCCL_IB_AR_THRESHOLD",
	"NCCL_IB_DATA_DIRECT",
	"NCCL_IB_DEVICE_PCI_ORDER",
	"NCCL_IB_DISABLE",
	"NCCL_IB_ECE_ENABLE",
	"NCCL_IB_FIFO_TC",
	"NCCL_IB_GID_INDEX",
	"NCCL_IB_HCA",
	"NCCL_IB_MERGE_NICS",
	"NCCL_IB_MERGE_VFS",
	"NCCL_IB_PCI_RELAXED_ORDERING",
	"NCCL_IB_PKEY",
	"NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS",
	"NCCL_IB_QPS_PER_CONNECTION",
	"NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME",
	"NCCL_IB_RESILIENCY_PORT_FAILOVER",
	"NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS",
	"NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY",
	"NCCL_IB_RETRY_CNT",
	"NCCL_IB_RETURN_ASYNC_EVENTS",
	"NCCL_IB_ROCE_VERSION_NUM",
	"NCCL_IB_ROUTABLE_FLID_GID_INDEX",
	"NCCL_IB_SL",
	"NCCL_IB_SPLIT_DATA_ON_QPS",
	"NCCL_IB_TC",
	"NCCL_IB_TIMEOUT",
	"NCCL_IB_USE_INLINE",
	"NCCL_IB_WARN_RAIL_LOCAL",
}

// Who has tuned NCCL's own transport finds each of its settings in one of the page's two tables.
func TestConfigurationPageShowsWhatIsNotRead(t *testing.T) {
	_, unread, _ := section(t, filepath.Join(root(t), "docs/configuration.md"), unreadBegin, unreadEnd)
	var listed []string
	for line := range strings.Lines(unread) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		listed = append(listed, regexp.MustCompile("NCCL_[A-Z_]+").FindAllString(first, -1)...)
	}
	none := func(string) string { return "" }
	for _, s := range config.Settings(none) {
		if slices.Contains(ofNetIB, s.Name) {
			listed = append(listed, s.Name)
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(ofNetIB, listed); diff != "" {
		t.Errorf("of NCCL's settings the tables of docs/configuration.md list (-want +got):\n%s", diff)
	}
}
