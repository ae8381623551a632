package queue

import (
	"strings"
	"testing"
)

// item is an item such as "shop/a/1": the first item of flow a of tenant shop. A trailing "!" makes it not ready.
type item string

func (i item) Flow() Flow {
	parts := strings.Split(string(i), "/")
	return Flow{Tenant: parts[0], Name: parts[1]}
}

func ready(i item) bool { return !strings.HasSuffix(string(i), "!") }

func fill(items string) *Fair[item] {
	var q Fair[item]
	for _, name := range strings.Fields(items) {
		q.Push(item(name))
	}
	return &q
}

func join(items []item) string {
	var names []string
	for _, i := range items {
		names = append(names, string(i))
	}
	return strings.Join(names, " ")
}

// TestOrder: the order in which items get a single slot that becomes free again and again.
func TestOrder(t *testing.T) {
	for name, tt := range map[string]struct{ pushed, want string }{
		"no item":                                  {"", ""},
		"one flow is first in, first out":          {"shop/a/1 shop/a/2 shop/a/3", "shop/a/1 shop/a/2 shop/a/3"},
		"tenants take turns":                       {"shop/a/1 shop/a/2 shop/a/3 blog/a/1 blog/a/2", "shop/a/1 blog/a/1 shop/a/2 blog/a/2 shop/a/3"},
		"the flows of a tenant take turns":         {"shop/a/1 shop/a/2 shop/b/1 shop/b/2", "shop/a/1 shop/b/1 shop/a/2 shop/b/2"},
		"more flows give a tenant no more turns":   {"shop/a/1 shop/b/1 shop/c/1 blog/a/1 blog/a/2", "shop/a/1 blog/a/1 shop/b/1 blog/a/2 shop/c/1"},
		"flows of one name belong to their tenant": {"shop/a/1 blog/a/1 shop/a/2", "shop/a/1 blog/a/1 shop/a/2"},
		"an item that is not ready delays nobody":  {"shop/a/1! shop/a/2 blog/a/1!", "shop/a/2"},
		"an item that is not ready keeps its flow": {"shop/a/1! blog/a/1 shop/a/2", "shop/a/2 blog/a/1"},
	} {
		t.Run(name, func(t *testing.T) {
			q := fill(tt.pushed)
			var order []item
			for next := q.Next(Slots{Free: 1, Limit: 1}, ready); len(next) > 0; next = q.Next(Slots{Free: 1, Limit: 1}, ready) {
				q.Take(next[0])
				order = append(order, next[0])
			}
			if got := join(order); got != tt.want {
				t.Errorf("served %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNext: which items get several free slots.
func TestNext(t *testing.T) {
	const pushed = "shop/a/1 shop/a/2 shop/b/1 blog/a/1 blog/a/2 blog/a/3"
	for name, tt := range map[string]struct {
		slots Slots
		want  string
	}{
		"no free slot":                   {Slots{Free: 0, Limit: 9}, ""},
		"more than what is free runs":    {Slots{Free: -1, Limit: 9}, ""},
		"one of each flow":               {Slots{Free: 3, Limit: 9}, "shop/a/1 shop/b/1 blog/a/1"},
		"then the next of each flow":     {Slots{Free: 5, Limit: 9}, "shop/a/1 shop/b/1 blog/a/1 shop/a/2 blog/a/2"},
		"more slots than items":          {Slots{Free: 9, Limit: 9}, "shop/a/1 shop/b/1 blog/a/1 shop/a/2 blog/a/2 blog/a/3"},
		"the limit of a tenant":          {Slots{Free: 9, Limit: 2}, "shop/a/1 shop/b/1 blog/a/1 blog/a/2"},
		"the limit counts what runs":     {Slots{Free: 9, Limit: 2, Running: map[string]int{"shop": 1, "blog": 2}}, "shop/a/1"},
		"a tenant may be over its limit": {Slots{Free: 2, Limit: 1, Running: map[string]int{"shop": 3}}, "blog/a/1"},
	} {
		t.Run(name, func(t *testing.T) {
			q := fill(pushed)
			if got := join(q.Next(tt.slots, ready)); got != tt.want {
				t.Errorf("next are %q, want %q", got, tt.want)
			}
			if q.Len() != len(strings.Fields(pushed)) {
				t.Errorf("%d items are left, want all", q.Len())
			}
		})
	}
}

// TestRemove: removed items leave no gap in the order, and a flow that was empty joins behind all others.
func TestRemove(t *testing.T) {
	q := fill("shop/a/1 shop/a/2 blog/a/1 news/a/1")
	q.Remove(func(i item) bool { return i == "shop/a/1" || i == "blog/a/1" })
	if _, found := q.Find(Flow{"blog", "a"}, ready); found || q.Len() != 2 {
		t.Errorf("%d items are left, want 2 and none of the removed", q.Len())
	}
	if got, found := q.Find(Flow{"shop", "a"}, ready); !found || got != "shop/a/2" {
		t.Errorf("the flow's first item is %q, want the one that was not removed", got)
	}
	q.Push("blog/a/2")
	if got, want := join(q.Next(Slots{Free: 9, Limit: 9}, ready)), "shop/a/2 news/a/1 blog/a/2"; got != want {
		t.Errorf("next are %q, want %q", got, want)
	}
}
