package database

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-getter"
)

// Downloads without this package's limits would run out of memory or disk on a hostile server, and reach hosts that no setting names.
func TestGrypesOwnDownloaderIsNotLinked(t *testing.T) {
	client := getter.Client{Src: "https://198.51.100.1/vulnerability-db.tar.zst", Dst: filepath.Join(t.TempDir(), "db")}
	if err := client.Get(); !errors.Is(err, getter.ErrRefused) {
		t.Errorf("want the replacement of go-getter, which refuses every download, got %v", err)
	}
}
