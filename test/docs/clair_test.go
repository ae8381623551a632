package docs

import (
	"regexp"
	"testing"
)

// The webhook targets on the pages about Clair name the Scanner that the pages create.
func TestClairWebhooksNameTheScanner(t *testing.T) {
	page := readAll(t, "docs/operate/clair*.md")
	scanner := regexp.MustCompile(`(?m)^ *kind: Scanner\n *metadata: \{name: (\S+), namespace: shop\}$`).FindStringSubmatch(page)
	if scanner == nil {
		t.Fatal("the pages make no Scanner in the namespace shop")
	}
	targets := regexp.MustCompile(`(?m)^ *target: \S+/clair/shop/(\S+)$`).FindAllStringSubmatch(page, -1)
	if len(targets) == 0 {
		t.Error("the pages have no target of webhooks")
	}
	for _, target := range targets {
		if target[1] != scanner[1] {
			t.Errorf("webhooks go to the Scanner %s, but the pages make the Scanner %s", target[1], scanner[1])
		}
	}
}
