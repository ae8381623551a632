package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzImageScanSpec: what is read of an ImageScan, also of one that an earlier build wrote, is read again when it was written.
func FuzzImageScanSpec(f *testing.F) {
	for _, seed := range []string{`{"digest":"sha256:a","scanner":"main"}`, `{"scannerRef":{"kind":"ClusterScanner","name":"all"},"scanner":"main"}`, `{"scannerRef":{}}`, `null`, `{"scannerRef":null,"scanner":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec, again ImageScanSpec
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		if spec.Scanner != "" && spec.ScannerRef == (ScannerReference{}) {
			t.Errorf("%s belongs to no scanner", text)
		}
		written, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s is written as %s: %v", text, written, err)
		}
		if diff := cmp.Diff(spec, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s is written as %s (-read +read again):\n%s", text, written, diff)
		}
	})
}
