package store

import (
	"fmt"
	"testing"
)

// TestRecentDropsTheOldest checks that entries that are read again stay when the limit is reached.
func TestRecentDropsTheOldest(t *testing.T) {
	r := recent[int]{limit: 4}
	for i := range 10 {
		r.put(fmt.Sprint(i), i, 1)
		if n, found := r.get("0"); !found || n != 0 {
			t.Fatalf("after %d entries the first, which is asked for again and again, is gone", i+1)
		}
	}
	if _, found := r.get("1"); found {
		t.Error("an entry that nobody asked for stays for ever")
	}
	if n, found := r.get("9"); !found || n != 9 {
		t.Error("the latest entry is gone")
	}
}

// TestRecentIsBoundedBySize checks that large entries leave as little memory in use as many small ones, however often they are read or added again.
func TestRecentIsBoundedBySize(t *testing.T) {
	r := recent[int]{limit: 100}
	for i := range 1000 {
		r.put(fmt.Sprint(i), i, 30)
		r.put(fmt.Sprint(i), i, 30)
		for back := range 5 {
			r.get(fmt.Sprint(i - back))
		}
		if held := 30 * (len(r.newer) + len(r.older)); held > 2*(100+30) {
			t.Fatalf("after %d entries, %d bytes are held", i+1, held)
		}
	}
}
