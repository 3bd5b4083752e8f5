package secret

import (
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// Every rule of the file is of a form that is read here. A newer version of the file may have others.
func TestGitleaks(t *testing.T) {
	list, err := parse(gitleaks)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 200 {
		t.Errorf("only %d rules", len(list))
	}
	var config struct{ Rules []map[string]any }
	if err := toml.Unmarshal(gitleaks, &config); err != nil {
		t.Fatal(err)
	}
	known := set("id description regex secretGroup entropy keywords path allowlists")
	for _, r := range config.Rules {
		for field := range r {
			if !known[field] {
				t.Errorf("rule %v has %s, which is not read", r["id"], field)
			}
		}
		re, _ := r["regex"].(string)
		if _, err := regexp.Compile(re); err != nil {
			t.Errorf("rule %v: %v", r["id"], err)
		}
	}
	if notice := strings.SplitN(string(gitleaks), "====", 2)[0]; !strings.Contains(notice, "MIT License") || !strings.Contains(notice, "Copyright (c) 2019 Zachary Rice") {
		t.Error("the file has no notice of its licence")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"[[rules]", "[[rules]]\nid = \"generic-api-key\"\nregex = 'x'\nkeywords = ['x']\n[[rules.allowlists]]\nregexes = ['(']\n"} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func TestEntropy(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "aaaa": 0, "abab": 1, "abcd": 2} {
		if got := entropy([]byte(text)); got != want {
			t.Errorf("entropy(%q) = %v, want %v", text, got, want)
		}
	}
}
