package rules

import (
	"testing"
)

func TestWords(t *testing.T) {}
