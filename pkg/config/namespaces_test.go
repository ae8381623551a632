package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestParseNamespaces: an invalid list is refused as a whole, with all its mistakes.
func TestParseNamespaces(t *testing.T) {
	many := make([]string, maxNamespaces)
	for i := range many {
		many[i] = fmt.Sprintf("ns-%03d", i)
	}
	for text, want := range map[string][]string{
		"": nil, " ": nil, "shop": {"shop"}, "shop, bank": {"bank", "shop"}, strings.Join(many, ","): many,
	} {
		if got, err := ParseNamespaces(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v and error %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string][]string{
		"shop,":                              {`"" is no name of a namespace`},
		"shop,bank,shop":                     {`"shop" stands there twice`},
		"Shop,a.b":                           {`"Shop" is no name`, `"a.b" is no name`},
		"*":                                  {`"*" is no name`},
		strings.Repeat("a", 64):              {"63"},
		strings.Join(many, ",") + ",another": {"101 namespaces are more than 100"},
	} {
		_, err := ParseNamespaces(text)
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%q: error %v, want one that says %s", text, err, words)
			}
		}
	}
}
