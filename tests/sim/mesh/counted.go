package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// operations are how many operations of exchanges are done, by their names, in all runs of the program.
var operations = struct {
	mu sync.Mutex
	n  map[string]int
}{n: map[string]int{}}

// countOperation counts an operation that is done, after the exchange has checked what it did.
func countOperation(what string) {
	operations.mu.Lock()
	defer operations.mu.Unlock()
	operations.n[what]++
}

// Operations returns a text that says how many operations of exchanges are done, in all runs of the program so far. A put that
// came too late for a window that ended counts too, because it is refused as it has to be.
func Operations() string {
	operations.mu.Lock()
	defer operations.mu.Unlock()
	all := 0
	var kinds []string
	for _, what := range slices.Sorted(maps.Keys(operations.n)) {
		all += operations.n[what]
		kinds = append(kinds, fmt.Sprintf("%s %d", what, operations.n[what]))
	}
	return fmt.Sprintf("%d operations of exchanges are done: %s\n", all, strings.Join(kinds, ", "))
}
