package datapath

import (
	"testing"

	"ncclmesh/tests/transporttest"
)

func TestMain(m *testing.M) { transporttest.Main(m) }
