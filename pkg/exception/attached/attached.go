// Package attached turns the OpenVEX documents that are attached to an image into exceptions
// (https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md).
//
// Who signed a document and which digest the signature is about is verified before. The package promises that
//   - an exception is about the image that the document is attached to, and never suppresses more than its statement says,
//   - only statements with the status not_affected or fixed become exceptions, and only while no later statement says otherwise,
//   - a document that contradicts itself leads to no exception at all, and to a problem that names the reason,
//   - while one document cannot be read or is too large, none leads to an exception: that one may say that the image is affected.
//
// It knows no store and no engine. Which finding an exception suppresses is decided by package exception.
package attached

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openvex/go-vex/pkg/vex"
	"github.com/package-url/packageurl-go"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of one statement.
const (
	maxNames    = 64 // IDs and aliases of its vulnerability
	maxPackages = 1024
	// maxIDBytes bounds an ID, and maxReasonBytes the text that is shown.
	maxIDBytes     = 256
	maxReasonBytes = 1024
)

// unreadProblem is why statements of one document do not count while another one is unread.
const unreadProblem = "no statement counts while an attached document is unread, which may say that the image is affected; mend it and scan the image again"

// contradiction is why a document does not count that was read.
type contradiction struct{ error }

// Document is a verified document.
type Document struct {
	Content []byte
	// Signer names who signed it.
	Signer string
}

// Image is what the documents are attached to.
type Image struct {
	// Digests are that of the platform's manifest, first, and that by which the image was requested.
	Digests []string
	// Architecture is that of the platform, such as amd64.
	Architecture string
	// Repository is the one in which the documents were found. It has no tag.
	Repository string
}

// claim is a statement about the image.
type claim struct {
	exception.Exception
	// names are the IDs of the vulnerability in upper case.
	names map[string]bool
	// builds are those of each package that the statement is about, by exception.Package.Subject. Without packages, it is about the whole image.
	builds   map[string][]exception.Build
	document int
}

// Exceptions returns the exceptions of an image's documents, without Manifest and Images. unread is true if documents may be missing among them.
// problems are why documents or statements do not count, each in one line. The result does not depend on the order of the documents.
func Exceptions(documents []Document, unread bool, img Image) (exceptions []exception.Exception, problems []string) {
	documents = slices.Clone(documents)
	slices.SortFunc(documents, func(a, b Document) int {
		return cmp.Or(bytes.Compare(a.Content, b.Content), strings.Compare(a.Signer, b.Signer))
	})
	var claims []claim
	refused := map[int]bool{}
	statements := 0
	for i, document := range documents {
		own, skipped, err := read(document, img, i, workerapi.MaxVEXStatements-statements)
		if err != nil {
			problems = append(problems, err.Error())
			unread = unread || !errors.As(err, new(contradiction))
		}
		problems = append(problems, skipped...)
		statements += len(own)
		claims = append(claims, own...)
	}
	for i := range claims {
		for j := range claims[:i] {
			a, b := &claims[j], &claims[i]
			if a.document != b.document && a.contradicts(b) && (!refused[a.document] || !refused[b.document]) {
				refused[a.document], refused[b.document] = true, true
				problems = append(problems, fmt.Sprintf("the documents %s and %s contradict each other about %s: %s and %s at the same time; neither counts",
					a.Name, b.Name, b.Vulnerabilities[0], a.Status, b.Status))
			}
		}
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return refused[c.document] && c.suppresses() })
	for i := range claims {
		c := &claims[i]
		if c.suppresses() && !slices.ContainsFunc(claims, func(other claim) bool {
			return !other.suppresses() && other.Created.After(c.Created) && c.overlaps(&other)
		}) {
			exceptions = append(exceptions, c.Exception)
		}
	}
	if unread && len(exceptions) > 0 {
		return nil, slices.Insert(problems, 0, unreadProblem)
	}
	slices.SortStableFunc(exceptions, func(a, b exception.Exception) int {
		return cmp.Or(slices.Compare(a.Vulnerabilities, b.Vulnerabilities), strings.Compare(a.Name, b.Name), b.Created.Compare(a.Created))
	})
	return exceptions, problems
}

// suppresses reports whether the statement means that there is nothing to do.
func (c *claim) suppresses() bool {
	return c.Status == string(vex.StatusNotAffected) || c.Status == string(vex.StatusFixed)
}

// contradicts reports whether two statements are about the same, and neither is the later one.
func (c *claim) contradicts(other *claim) bool {
	return (c.Status != other.Status || c.Justification != other.Justification) && c.Created.Equal(other.Created) && c.overlaps(other)
}

// overlaps reports whether two statements are about the same vulnerability in the same package.
func (c *claim) overlaps(other *claim) bool {
	if !slices.ContainsFunc(c.Vulnerabilities, func(id string) bool { return other.names[strings.ToUpper(id)] }) {
		return false
	}
	if c.Packages == nil || other.Packages == nil {
		return true
	}
	for subject, builds := range c.builds {
		for _, build := range other.builds[subject] {
			if slices.ContainsFunc(builds, build.Overlaps) {
				return true
			}
		}
	}
	return false
}

// read returns the statements of a document that are about the image. skipped is why statements about the image are not among them. An error
// names the document. The statements beside it suppress nothing: they only end those of other documents.
func read(document Document, img Image, number, room int) (claims []claim, skipped []string, err error) {
	parsed, err := vex.Parse(document.Content)
	name := fmt.Sprintf("the document signed by %s", document.Signer)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%s is no OpenVEX: %w", name, err)
	case !strings.HasPrefix(parsed.Context, vex.Context):
		return nil, nil, fmt.Errorf("%s has the context %.80q and is no OpenVEX", name, parsed.Context)
	}
	id := text.Truncate(cmp.Or(failure.Line(parsed.ID), "without an @id"), maxIDBytes)
	name = "the document " + id
	switch {
	case len(parsed.Statements) == 0:
		return nil, nil, fmt.Errorf("%s has no statements", name)
	case len(parsed.Statements) > room:
		return nil, nil, fmt.Errorf("%s has %d statements; at most %d of all documents of an image are read", name, len(parsed.Statements), workerapi.MaxVEXStatements)
	}
	for i := range parsed.Statements {
		c, reason, invalid := claimOf(parsed, &parsed.Statements[i], img)
		switch {
		case invalid != nil && err == nil:
			err = fmt.Errorf("%s does not count: statement %d: %w", name, i+1, invalid)
		case reason != "":
			skipped = append(skipped, fmt.Sprintf("statement %d of %s does not count: %s", i+1, name, reason))
		case c != nil:
			c.Name, c.Signer, c.document = id, document.Signer, number
			claims = append(claims, *c)
		}
	}
	if err != nil {
		return harmful(claims), nil, err
	}
	for i := range claims {
		for j := range claims[:i] {
			if claims[j].contradicts(&claims[i]) {
				return harmful(claims), nil, contradiction{fmt.Errorf("%s contradicts itself about %s: %s and %s at the same time; none of its statements counts",
					name, claims[i].Vulnerabilities[0], describe(&claims[j]), describe(&claims[i]))}
			}
		}
	}
	if len(claims)+len(skipped) == 0 {
		skipped = append(skipped, name+" makes no statement about this image")
	}
	return claims, skipped, nil
}

// harmful returns the statements that suppress nothing.
func harmful(claims []claim) (kept []claim) {
	for i := range claims {
		if !claims[i].suppresses() {
			kept = append(kept, claims[i])
		}
	}
	return kept
}

func describe(c *claim) string { return strings.TrimSuffix(c.Status+" "+c.Justification, " ") }

// claimOf returns what a statement says about the image; nil if it is about another one. skipped is why a statement about the image cannot
// count, although the others of its document do.
func claimOf(document *vex.VEX, statement *vex.Statement, img Image) (c *claim, skipped string, err error) {
	if err := statement.Validate(); err != nil {
		return nil, "", err
	}
	c = &claim{Exception: exception.Exception{
		Status: string(statement.Status), Justification: string(statement.Justification), Reason: text.Truncate(failure.Line(reasonOf(document, statement)), maxReasonBytes),
	}}
	if c.Vulnerabilities, err = namesOf(&statement.Vulnerability); err != nil {
		return nil, "", err
	}
	c.names = map[string]bool{}
	for _, id := range c.Vulnerabilities {
		c.names[strings.ToUpper(id)] = true
	}
	c.Created = TimeOf(document, statement).UTC().Truncate(time.Millisecond)
	subcomponents, isAbout := img.subcomponents(statement.Products)
	if !isAbout {
		return nil, "", nil
	}
	if len(subcomponents) > maxPackages {
		return nil, "", fmt.Errorf("it has %d subcomponents, more than %d", len(subcomponents), maxPackages)
	}
	err = c.selectPackages(subcomponents)
	if err == nil && c.suppresses() && !slices.ContainsFunc(c.Vulnerabilities, func(id string) bool { return !IsAddress(id) }) {
		return nil, fmt.Sprintf("it names the vulnerability by the address %.200s, in which is no ID of a known form; set its name", c.Vulnerabilities[0]), nil
	}
	if err == nil {
		return c, "", nil
	}
	if c.suppresses() {
		return nil, err.Error(), nil
	}
	// What cannot be read must not suppress less: a statement that the image is affected is about all of it then.
	c.builds, c.Packages = nil, nil
	return c, "", nil
}

// TimeOf returns when a statement was made or changed last; zero if it has no time. A statement without a time has that of its document.
func TimeOf(document *vex.VEX, statement *vex.Statement) time.Time {
	latest := func(times ...*time.Time) (at time.Time) {
		for _, t := range times {
			if t != nil && t.After(at) {
				at = *t
			}
		}
		return at
	}
	if at := latest(statement.Timestamp, statement.LastUpdated); !at.IsZero() {
		return at
	}
	return latest(document.Timestamp, document.LastUpdated)
}

// NamesOf returns the ID and the aliases of a vulnerability, at most one more than are read. Of one that is named by an address, it is the ID in that:
// addresses of advisories end in it, or have it as a parameter. An address without an ID of a known form stays as it is.
func NamesOf(v *vex.Vulnerability) (names []string) {
	for i, name := range append([]vex.VulnerabilityID{v.Name, vex.VulnerabilityID(v.ID)}, v.Aliases...) {
		id, isKnown := idIn(string(name))
		if i == 1 && len(names) > 0 && !isKnown || id == "" || slices.Contains(names, id) {
			continue // the author's own address of what has a name
		}
		if names = append(names, id); len(names) > maxNames {
			break
		}
	}
	return names
}

// IsAddress reports whether a name is an address, which no finding has as its ID.
func IsAddress(name string) bool {
	return strings.Contains(name, "://") || strings.HasPrefix(name, "urn:")
}

// anyYear accepts each year of an ID.
var anyYear = time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC)

// idIn returns the ID that an address names; the name itself if it is no address, or does not name exactly one. isKnown is false for an ID of no known form.
func idIn(name string) (id string, isKnown bool) {
	if !IsAddress(name) {
		_, isKnown := finding.ParseID(name, anyYear)
		return name, isKnown
	}
	text, err := url.PathUnescape(name)
	if err != nil {
		return name, false
	}
	separators := "/?&=#"
	if strings.HasPrefix(text, "urn:") {
		separators += ":"
	}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		part = strings.TrimSuffix(strings.TrimSuffix(part, ".html"), ".json")
		found, isID := finding.ParseID(part, anyYear)
		if !isID || !strings.EqualFold(found, part) {
			continue
		}
		if id != "" && id != found {
			return name, false
		}
		id = found
	}
	return cmp.Or(id, name), id != ""
}

// namesOf is NamesOf with bounds.
func namesOf(v *vex.Vulnerability) (names []string, err error) {
	names = NamesOf(v)
	if len(names) > maxNames || slices.ContainsFunc(names, func(name string) bool { return len(name) > maxIDBytes }) {
		return nil, fmt.Errorf("the vulnerability %.40q has more than %d IDs, or one of more than %d bytes", names[0], maxNames, maxIDBytes)
	}
	if len(names) == 0 {
		return nil, errors.New("it names no vulnerability")
	}
	return names, nil
}

// reasonOf returns why: the impact statement, the notes, or where the statement comes from.
func reasonOf(document *vex.VEX, statement *vex.Statement) string {
	return cmp.Or(statement.ImpactStatement, statement.StatusNotes, "OpenVEX document of "+cmp.Or(document.Author, "an unknown author"))
}

// subcomponents returns the subcomponents of those products that are the image, none if one of them has none: then the statement is about the
// whole image. A product that is a package is that package in the image. A statement without products is about what its document is attached to. Packages
// for architectures that do not run in the image are left out.
func (img Image) subcomponents(products []vex.Product) (of []vex.Subcomponent, isAbout bool) {
	if len(products) == 0 {
		return nil, true
	}
	whole := false
	for i := range products {
		product := &products[i]
		switch {
		case img.is(&product.Component):
			whole = whole || len(product.Subcomponents) == 0
			of = append(of, product.Subcomponents...)
		case len(product.Subcomponents) == 0 && isPackage(&product.Component):
			of = append(of, vex.Subcomponent{Component: product.Component})
		}
	}
	if whole {
		return nil, true
	}
	of = slices.DeleteFunc(of, func(s vex.Subcomponent) bool { return !img.mayContain(&s.Component) })
	return of, len(of) > 0
}

// predecessors maps architectures to those whose packages may be in the same image.
var predecessors = map[string]string{"amd64": "386", "arm64": "arm"}

// mayContain reports whether a package is for the image's architecture.
func (img Image) mayContain(component *vex.Component) bool {
	purl, err := packageurl.FromString(cmp.Or(component.Identifiers[vex.PURL], component.ID))
	if err != nil {
		return true
	}
	arch := exception.ArchitectureOf(purl)
	return arch == "" || arch == img.Architecture || arch == predecessors[img.Architecture]
}

// isPackage reports whether a component is a package and no image, by its package URL.
func isPackage(component *vex.Component) bool {
	purl, err := packageurl.FromString(cmp.Or(component.Identifiers[vex.PURL], component.ID))
	return err == nil && purl.Type != packageurl.TypeOCI && purl.Type != packageurl.TypeDocker
}

// is reports whether a component is the image: by a digest, or by the name of its repository without a version. Another image may get a tag.
func (img Image) is(component *vex.Component) bool {
	if sum := component.Hashes[vex.SHA256]; sum != "" {
		return slices.Contains(img.Digests, "sha256:"+strings.ToLower(string(sum)))
	}
	id := cmp.Or(component.Identifiers[vex.PURL], component.ID)
	purl, err := packageurl.FromString(id)
	if err != nil {
		return slices.ContainsFunc(img.Digests, func(digest string) bool { return id == digest || id == img.Repository+"@"+digest })
	}
	if purl.Type != packageurl.TypeOCI && purl.Type != packageurl.TypeDocker {
		return false
	}
	version, err := url.PathUnescape(purl.Version)
	if err != nil {
		return false
	}
	if version == img.Digests[0] {
		return true
	}
	qualifiers := purl.Qualifiers.Map()
	if arch := qualifiers["arch"]; arch != "" && goArch(arch) != img.Architecture {
		return false // an index and a repository have images for several
	}
	if strings.HasPrefix(version, "sha256:") {
		return slices.Contains(img.Digests, version)
	}
	if version != "" || qualifiers["tag"] != "" {
		return false
	}
	own, err := image.ParseReference(img.Repository)
	return err == nil && slices.Contains(exception.RepositoriesOf(purl), own.Repository)
}

// goArch returns the name of an architecture in manifests, for its name in Linux.
func goArch(arch string) string {
	switch arch {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return arch
}

// selectPackages limits the statement to packages. Without subcomponents it is about the whole image.
func (c *claim) selectPackages(subcomponents []vex.Subcomponent) error {
	for i := range subcomponents {
		component := &subcomponents[i].Component
		id := cmp.Or(component.Identifiers[vex.PURL], component.ID)
		purl, err := packageurl.FromString(id)
		if err != nil {
			return fmt.Errorf("its subcomponent %.80q is no package URL", id)
		}
		selected, err := exception.PackageOf(purl)
		if err != nil {
			return err
		}
		if c.builds == nil {
			c.builds = map[string][]exception.Build{}
		}
		if !slices.Contains(c.Packages, selected) {
			subject, build := selected.Subject()
			c.builds[subject] = append(c.builds[subject], build)
			c.Packages = append(c.Packages, selected)
		}
	}
	return nil
}
