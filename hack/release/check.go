package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// check is one condition that must hold before a release is published.
type check struct {
	// what is the condition in words, for the report.
	what string
	run  func(context.Context) error
}

// report runs the checks and prints the result of each. It returns an error if any check failed.
func (r release) report(ctx context.Context, checks []check, out io.Writer) error {
	failed := 0
	for _, c := range checks {
		err := c.run(ctx)
		if err == nil {
			fmt.Fprintln(out, "  ok    ", c.what)
			continue
		}
		failed++
		fmt.Fprintf(out, "  WRONG  %s:\n         %s\n", c.what, strings.ReplaceAll(err.Error(), "\n", "\n         "))
	}
	if failed > 0 {
		return fmt.Errorf("%s is not fit to be published: %d checks failed", r.dir, failed)
	}
	fmt.Fprintf(out, "%s is complete: version %s\n", r.dir, r.version)
	return nil
}

// checks returns all checks. again is the directory of a second build of the same sources, or empty. tagged adds the check that the
// committed bundle matches these images.
func (r release) checks(again string, tagged bool) []check {
	checks := []check{
		{"every artefact is there", r.checkComplete},
		{"images have all platforms, the version, and a user without permissions", r.checkImages},
		{"images.json names the images that are there", r.checkRecord},
		{"the programs say the version", r.checkProgramVersions},
		{"krew can install the kubectl plugin, which says the version", r.checkPlugin},
		{"chart, bundle and change log have the version", r.checkVersions},
		{"install.yaml, quickstart.yaml, chart and bundle name the images by these digests", r.checkReferences},
		{"each software bill of materials names what its program is made of", r.checkSBOMs},
		{"checksums are those of all published files", r.checkChecksums},
	}
	if again != "" {
		second := r
		second.dir = again
		checks = append(checks, check{"a second build gives the same", func(context.Context) error { return r.same(second) }})
	}
	if tagged {
		checks = append(checks, check{"the committed bundle is that of these images", r.checkCommittedLock})
	}
	return checks
}

// checkComplete checks that every published file exists.
func (r release) checkComplete(context.Context) error {
	wanted := []string{
		"install.yaml", "quickstart.yaml", "crds.yaml", "olm.yaml", "olm-openshift.yaml", "olm-policies.yaml", recordFile, checksumsFile, checksumsFile + ".sigstore.json", "RELEASE_NOTES.md",
		krewFile,
		filepath.Base(r.chartFile()), filepath.Join("bundle", "manifests"),
	}
	for _, name := range programs {
		wanted = append(wanted, filepath.Join("images", name, "index.json"))
		for _, platform := range platforms {
			wanted = append(wanted, sbomFile(name, platform.OS, platform.Architecture))
		}
	}
	for _, platform := range pluginPlatforms {
		wanted = append(wanted, r.pluginArchive(platform), sbomFile(pluginName, platform.OS, platform.Architecture))
	}
	for _, name := range packaged {
		wanted = append(wanted, filepath.Join("images", name, "index.json"))
	}
	var missing []error
	for _, file := range wanted {
		if _, err := os.Stat(r.path(file)); err != nil {
			missing = append(missing, fmt.Errorf("missing: %s", file))
		}
	}
	return errors.Join(missing...)
}

func (r release) checkImages(context.Context) error {
	var wrong []error
	for _, name := range slices.Concat(programs, packaged) {
		if err := r.checkImage(name); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}

func (r release) checkImage(name string) error {
	index, err := r.index(name)
	if err != nil {
		return err
	}
	for _, platform := range platforms {
		image, err := imageFor(index, platform)
		if err != nil {
			return err
		}
		file, err := image.ConfigFile()
		if err != nil {
			return err
		}
		if label := file.Config.Labels["org.opencontainers.image.version"]; label != r.version {
			return fmt.Errorf("label of version %q for %s; expected %s", label, platform, r.version)
		}
		if user, _, _ := strings.Cut(file.Config.User, ":"); user == "" || user == "0" || user == "root" {
			return fmt.Errorf("user %q for %s; expected one without permissions", file.Config.User, platform)
		}
	}
	return nil
}

// checkRecord checks that images.json has the digests of the images.
func (r release) checkRecord(context.Context) error {
	record, err := r.record()
	if err != nil {
		return err
	}
	var wrong []error
	for _, name := range slices.Concat(programs, packaged) {
		index, err := r.index(name)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		if !strings.HasSuffix(record[name], "/"+name+"@"+digest.String()) {
			wrong = append(wrong, fmt.Errorf("%s names %q; the image has %s", recordFile, record[name], digest))
		}
	}
	return errors.Join(wrong...)
}

func (r release) checkProgramVersions(ctx context.Context) error {
	var wrong []error
	for _, name := range programs {
		index, err := r.index(name)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		printed, err := printedVersion(ctx, index, name)
		if err != nil {
			wrong = append(wrong, err)
		} else if !strings.HasPrefix(printed, name+" "+r.version+" (go") {
			wrong = append(wrong, fmt.Errorf("%s says %q; expected %s and no commit", name, strings.TrimSpace(printed), r.version))
		}
	}
	return errors.Join(wrong...)
}

func (r release) checkVersions(context.Context) error {
	chart, _, chartErr := r.chart()
	if chartErr == nil && (chart.Version != r.version || chart.AppVersion != r.version) {
		chartErr = fmt.Errorf("the file Chart.yaml has version %s and appVersion %s; VERSION has %s", chart.Version, chart.AppVersion, r.version)
	}
	csv, csvErr := r.clusterServiceVersion()
	if csvErr == nil && (csv.Spec.Version != r.version || csv.Metadata.Name != "scanner-operator.v"+r.version) {
		csvErr = fmt.Errorf("the ClusterServiceVersion %s has version %s; VERSION has %s", csv.Metadata.Name, csv.Spec.Version, r.version)
	}
	_, notesErr := r.notes()
	return errors.Join(chartErr, csvErr, notesErr)
}

// clusterServiceVersion holds the name and the version of the bundle's ClusterServiceVersion, and its text.
type clusterServiceVersion struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version string `json:"version"`
	} `json:"spec"`
	text string
}

func (r release) clusterServiceVersion() (clusterServiceVersion, error) {
	found, err := filepath.Glob(r.path("bundle", "manifests", "*clusterserviceversion.yaml"))
	if err != nil || len(found) != 1 {
		return clusterServiceVersion{}, fmt.Errorf("the bundle has %d ClusterServiceVersions; expected one", len(found))
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return clusterServiceVersion{}, err
	}
	csv := clusterServiceVersion{text: string(text)}
	return csv, yaml.Unmarshal(text, &csv)
}

// checkReferences checks each reference to the project's images that users would install.
func (r release) checkReferences(context.Context) error {
	record, err := r.record()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(r.path("install.yaml"))
	quickstart, quickstartErr := os.ReadFile(r.path("quickstart.yaml"))
	csv, csvErr := r.clusterServiceVersion()
	metadata, values, chartErr := r.chart()
	if err := errors.Join(err, quickstartErr, csvErr, chartErr); err != nil {
		return err
	}
	var wrong []error
	for _, name := range programs {
		wrong = append(wrong,
			requireOnlyReference("install.yaml", string(manifest), name, record[name]),
			requireOnlyReference("quickstart.yaml", string(quickstart), name, record[name]),
			requireOnlyReference("the ClusterServiceVersion", csv.text, name, record[name]),
			requireImageInValues(values, name, record[name]),
			requireOnlyReference("Chart.yaml for Artifact Hub", metadata.Annotations[annotationImages], name, record[name]))
	}
	return errors.Join(wrong...)
}

// requireOnlyReference checks that text contains an image, and every time by the given reference.
func requireOnlyReference(where, text, name, reference string) error {
	repository, _, _ := strings.Cut(reference, "@")
	// The bare name counts too: it remains where kustomize was not configured to replace it.
	found := regexp.MustCompile(`(?m)(`+regexp.QuoteMeta(repository)+`([@:][^\s"',]*)?|(image|value): "?`+name+`([@:]\S*)?)"?$`).FindAllString(text, -1)
	if len(found) == 0 {
		return fmt.Errorf("%s does not name %s", where, reference)
	}
	for _, one := range found {
		if !strings.HasSuffix(strings.Trim(one, `"`), reference) {
			return fmt.Errorf("%s says %q; expected %s", where, one, reference)
		}
	}
	return nil
}

// requireImageInValues checks that the chart's values name an image by registry, repository and digest.
func requireImageInValues(values chartValues, name, reference string) error {
	for _, key := range slices.Sorted(maps.Keys(values.Image)) {
		one, ok := values.Image[key].(map[string]any)
		if !ok || one["repository"] != name {
			continue
		}
		if got := fmt.Sprintf("%v/%v@%v", values.Image["registry"], one["repository"], one["digest"]); got != reference {
			return fmt.Errorf("values.yaml says %s; expected %s", got, reference)
		}
		return nil
	}
	return fmt.Errorf("values.yaml names no image %s", name)
}

// sbomFile returns the path of the SBOM of a program for a platform, relative to the release's directory.
func sbomFile(name, system, architecture string) string {
	return filepath.Join("sbom", name+"_"+system+"_"+architecture+".spdx.json")
}

// checkSBOMs checks that each SBOM contains Go's standard library and the root certificates, which every program has.
func (r release) checkSBOMs(context.Context) error {
	var wrong []error
	for _, name := range programs {
		for _, platform := range platforms {
			file := sbomFile(name, platform.OS, platform.Architecture)
			if err := checkSBOM(r.path(file)); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
			}
		}
	}
	return errors.Join(wrong...)
}

func checkSBOM(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var materials struct {
		SPDXVersion string `json:"spdxVersion"`
		Packages    []struct {
			Name string `json:"name"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(content, &materials); err != nil {
		return err
	}
	named := map[string]bool{}
	for _, one := range materials.Packages {
		named[one.Name] = true
	}
	if !strings.HasPrefix(materials.SPDXVersion, "SPDX-") || !named["stdlib"] || !named["golang.org/x/crypto/x509roots/fallback"] {
		return fmt.Errorf("%d packages, but not all that every program is made of", len(named))
	}
	return nil
}

// checkCommittedLock checks that a build of the tag produces the images that the tag's bundle names.
func (r release) checkCommittedLock(context.Context) error {
	built, err := os.ReadFile(r.path(lockFile))
	committed, errCommitted := os.ReadFile(filepath.Join(r.root, committedLock))
	if err := errors.Join(err, errCommitted); err != nil {
		return err
	}
	if !bytes.Equal(built, committed) {
		return fmt.Errorf("%s is of other images, or of another day: make release-lock, and commit", committedLock)
	}
	return nil
}

func (r release) checkChecksums(context.Context) error {
	want, err := r.checksums()
	if err != nil {
		return err
	}
	got, err := os.ReadFile(r.path(checksumsFile))
	if err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("%s was not written last: files have changed, came or went since", checksumsFile)
	}
	return nil
}

// same compares the files that must not depend on the time and place of the build. The SBOMs contain the time of their creation and are
// not compared.
func (r release) same(second release) error {
	var differing []error
	files := []string{recordFile, "install.yaml", "quickstart.yaml", "crds.yaml", "olm.yaml", "olm-openshift.yaml", "olm-policies.yaml", filepath.Base(r.chartFile()), krewFile}
	for _, platform := range pluginPlatforms {
		files = append(files, r.pluginArchive(platform))
	}
	for _, file := range files {
		first, err := os.ReadFile(r.path(file))
		again, errAgain := os.ReadFile(second.path(file))
		if err := errors.Join(err, errAgain); err != nil {
			differing = append(differing, err)
		} else if !bytes.Equal(first, again) {
			differing = append(differing, fmt.Errorf("%s differs from %s", r.path(file), second.path(file)))
		}
	}
	return errors.Join(differing...)
}
