package match

import (
	grypematch "github.com/anchore/grype/grype/match"

	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/matcher"
	"github.com/anchore/grype/grype/matcher/dpkg"
	"github.com/anchore/grype/grype/matcher/rpm"
	"github.com/anchore/grype/grype/matcher/stock"
	"github.com/anchore/grype/grype/pkg"
	"github.com/anchore/grype/grype/version"
	syftpkg "github.com/anchore/syft/syft/pkg"
)

// matchers returns matchers with the defaults of Grype's command line (grype v0.121, cmd/grype/cli/options/match.go). The zero
// value differs: it does not match binaries that have no matcher of their own.
func matchers() []grypematch.Matcher {
	return matcher.NewDefaultMatchers(matcher.Config{
		Stock: stock.MatcherConfig{UseCPEs: true},
		Dpkg:  dpkg.MatcherConfig{MissingEpochStrategy: version.MissingEpochStrategyZero},
		Rpm:   rpm.MatcherConfig{MissingEpochStrategy: version.MissingEpochStrategyAuto},
	})
}

// providerConfig returns the defaults of Grype's command line for reading an SBOM. It has no options for cataloging, whose defaults
// compile hundreds of regular expressions.
func providerConfig() pkg.ProviderConfig {
	return pkg.ProviderConfig{
		SynthesisConfig: pkg.SynthesisConfig{Distro: pkg.DistroConfig{FixChannels: distro.DefaultFixChannels()}},
	}
}

// ignoreRules returns the rules of Grype's command line: vulnerabilities of the kernel are ignored in packages that contain
// only its headers or build tools (grype v0.121, cmd/grype/cli/commands/root.go).
func ignoreRules() []grypematch.IgnoreRule {
	rule := func(packageType syftpkg.Type, name, upstream string) grypematch.IgnoreRule {
		return grypematch.IgnoreRule{
			Package:   grypematch.IgnoreRulePackage{Type: string(packageType), Name: name, UpstreamName: upstream},
			MatchType: grypematch.ExactIndirectMatch,
		}
	}
	return []grypematch.IgnoreRule{
		rule(syftpkg.RpmPkg, "kernel-headers", "kernel"),
		rule(syftpkg.DebPkg, "linux(-.*)?-headers-.*", "linux.*"),
		rule(syftpkg.DebPkg, "linux-libc-dev", "linux"),
		rule(syftpkg.DebPkg, "linux-kbuild-.*", "linux.*"),
	}
}
