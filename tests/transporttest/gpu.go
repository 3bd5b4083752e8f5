package transporttest

import (
	"testing"

	"ncclmesh/tests/sim/adapter"
)

// GPUMemory allocates n bytes of GPU memory in a simulated test, whose end frees it.
func GPUMemory(t *testing.T, n int) *adapter.GPUMemory {
	t.Helper()
	m, err := WorldOf(t).Fabric.NewGPUMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	})
	return m
}
