package match

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/pkg"

	"github.com/scanner-operator/scanner-operator/worker/database"
)

// keyWriter makes the keys of cached matches. It reuses its buffer, and is not safe for concurrent use.
type keyWriter struct {
	buffer []byte
}

// keyOf returns the key of the matches that a matcher finds for a package. It contains every field of the package except those that no
// matcher reads: ID, locations, licenses, annotations, related packages and the path of a Java archive. The matcher is not part of the
// key, since there is one for each type of package, with a constant configuration.
//
// Packages with metadata of an unknown kind are not cacheable. Neither are those with a table of a Go program's functions: the table is
// large, and only another image with the same program has an equal one.
func (w *keyWriter) keyOf(p pkg.Package) (key database.MatchKey, cacheable bool) {
	w.buffer = w.buffer[:0]
	w.strings(p.Name, p.Version, string(p.Language), string(p.Type), p.PURL)
	w.distro(p.Distro)
	w.number(len(p.CPEs))
	for _, c := range p.CPEs {
		a := c.Attributes
		w.strings(a.Part, a.Vendor, a.Product, a.Version, a.Update, a.Edition, a.SWEdition, a.TargetSW, a.TargetHW, a.Other, a.Language,
			string(c.Source))
	}
	w.number(len(p.Upstreams))
	for _, u := range p.Upstreams {
		w.strings(u.Name, u.Version)
	}
	if !w.metadata(p.Metadata) {
		return key, false
	}
	return sha256.Sum256(w.buffer), true
}

// strings writes each string after its length, so that different lists never have equal encodings.
func (w *keyWriter) strings(all ...string) {
	for _, s := range all {
		w.number(len(s))
		w.buffer = append(w.buffer, s...)
	}
}

func (w *keyWriter) number(n int) { w.buffer = binary.AppendVarint(w.buffer, int64(n)) }

// list writes a list of any length.
func (w *keyWriter) list(all []string) {
	w.number(len(all))
	w.strings(all...)
}

func (w *keyWriter) distro(d *distro.Distro) {
	if d == nil {
		w.strings("no distribution")
		return
	}
	w.strings("distribution", string(d.Type), d.Version, d.Codename, d.MajorVersion(), d.MinorVersion(), d.RemainingVersion())
	w.list(d.Channels)
	w.list(d.IDLike)
	supportEnd := ""
	if d.SupportEnd != nil {
		supportEnd = d.SupportEnd.String()
	}
	w.strings(supportEnd)
}

// metadata writes what Grype read of the package manager's metadata. It returns false if that has no key.
func (w *keyWriter) metadata(metadata any) bool {
	switch m := metadata.(type) {
	case nil:
		w.strings("none")
	case pkg.ApkMetadata:
		w.strings("apk", m.Arch)
		return len(m.Files) == 0
	case pkg.GolangBinMetadata:
		w.strings("go", m.GoCompiledVersion, m.Architecture, m.H1Digest, m.MainModule)
		w.list(m.GoCryptoSettings)
		return len(m.Symbols) == 0 && len(m.BuildSettings) == 0
	case pkg.JavaMetadata:
		w.strings("java", m.PomArtifactID, m.PomGroupID, m.ManifestName)
		w.number(len(m.ArchiveDigests))
		for _, d := range m.ArchiveDigests {
			w.strings(d.Algorithm, d.Value)
		}
	case pkg.JavaVMInstallationMetadata:
		w.strings("jvm", m.Release.JavaRuntimeVersion, m.Release.JavaVersion, m.Release.FullVersion, m.Release.SemanticVersion)
	case pkg.RpmMetadata:
		w.strings("rpm", m.Arch)
		if m.Epoch != nil {
			w.strings("epoch")
			w.number(*m.Epoch)
		}
		if m.ModularityLabel != nil {
			w.strings("module", *m.ModularityLabel)
		}
	default:
		return false
	}
	return true
}
