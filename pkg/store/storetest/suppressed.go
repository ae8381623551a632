package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// drawExceptions draws exceptions for what drawFindings draws, in upper and lower case.
func drawExceptions(t *rapid.T) exception.Set {
	some := func(what string, values ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(values), 0, 2, rapid.ID[string]).Draw(t, what)
	}
	number := 0
	exceptions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) exception.Exception {
		number++
		e := exception.Exception{
			UID: fmt.Sprint("exception ", number), Status: "not_affected",
			Vulnerabilities: some("ids", "cve-2026-0001", "CVE-2026-0002", "GHSA-a-3", "CVE-2026-0004", "CVE-1999-0001"),
			Images:          some("images", "api", "web:1", "*", "base@"+digest("index one"), "web@sha256:*"),
		}
		for _, name := range some("packages", "openssl", "zli?", "", "Openssl") {
			e.Packages = append(e.Packages, exception.Package{Name: name, Version: rapid.SampledFrom([]string{"", "1", "?"}).Draw(t, "version")})
		}
		if len(e.Vulnerabilities)+len(e.Packages) == 0 {
			e.Vulnerabilities = []string{"CVE-2026-0005"}
		}
		if rapid.Bool().Draw(t, "ends") {
			e.Expires = newClock().Now().Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "days")) * 24 * time.Hour)
		}
		return e
	}), 0, 3).Draw(t, "exceptions")
	return exception.NewSet(exceptions, newClock().Now())
}

func drawImages(t *rapid.T, name string) []exception.Image {
	references := rapid.SliceOfN(rapid.SampledFrom([]string{"api:1", "web:1", "base:2", "web@" + digest("index one")}), 0, 2).Draw(t, "references")
	var images []exception.Image
	for _, reference := range references {
		images = append(images, imageNamed(reference, key(name).Digest))
	}
	return images
}
