// Package vexfile turns the statements of an OpenVEX document (https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md) into exceptions.
//
// An exception never suppresses more than its statement says. A statement about a product that is neither an image nor a package of an image,
// by their package URLs, is an error.
package vexfile

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/openvex/go-vex/pkg/vex"
	"github.com/package-url/packageurl-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/attached"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// maxTextBytes is the length of texts in an exception.
const maxTextBytes = 1024

// maxNameBytes leaves room for the hash in the name of an object.
const maxNameBytes = 200

// Draft is an exception that does not exist yet.
type Draft struct {
	Name string
	Spec v1alpha1.ExceptionSpec
}

// Defaults are for what a statement does not have, or cannot have.
type Defaults struct {
	// Justification is for statements with the status not_affected that have none.
	Justification v1alpha1.VEXJustification
	// Expires is the end of each exception; OpenVEX has none.
	Expires *metav1.Time
}

// Drafts returns an exception for each statement, in the order of the document. Of several statements about the same, the latest counts. Its name
// depends only on what the statement is about, so the same document leads to the same exceptions.
func Drafts(document []byte, defaults Defaults) ([]Draft, error) {
	parsed, err := vex.Parse(document)
	if err != nil {
		return nil, fmt.Errorf("the document is no OpenVEX: %w", err)
	}
	if len(parsed.Statements) == 0 {
		return nil, errors.New("the document has no statements")
	}
	var issued time.Time
	if parsed.Timestamp != nil {
		issued = *parsed.Timestamp
	}
	for i := range parsed.Statements {
		if at := attached.TimeOf(parsed, &parsed.Statements[i]); !at.IsZero() {
			parsed.Statements[i].Timestamp = &at
		}
	}
	vex.SortStatements(parsed.Statements, issued)
	var drafts []Draft
	for i := range parsed.Statements {
		statement := &parsed.Statements[i]
		draft, err := draftOf(parsed, statement, defaults)
		if err != nil {
			return nil, fmt.Errorf("the statement about %s: %w", statement.Vulnerability.Name, err)
		}
		if same := slices.IndexFunc(drafts, func(d Draft) bool { return d.Name == draft.Name }); same >= 0 {
			drafts[same] = draft
			continue
		}
		drafts = append(drafts, draft)
	}
	return drafts, nil
}

func draftOf(document *vex.VEX, statement *vex.Statement, defaults Defaults) (Draft, error) {
	if err := statement.Validate(); err != nil {
		return Draft{}, err
	}
	spec := v1alpha1.ExceptionSpec{
		Status: v1alpha1.VEXStatus(statement.Status), Justification: v1alpha1.VEXJustification(statement.Justification), ExpirationTime: defaults.Expires,
		Reason: text.Truncate(reasonOf(document, statement), maxTextBytes),
	}
	switch spec.Status {
	case v1alpha1.VEXNotAffected:
		spec.Justification = cmp.Or(spec.Justification, defaults.Justification)
		if spec.Justification == "" {
			return Draft{}, errors.New("it has no justification, which an exception needs: give --justification for such statements")
		}
	case v1alpha1.VEXAffected:
		spec.Action = text.Truncate(statement.ActionStatement, maxTextBytes)
	}
	if spec.ExpirationTime == nil && (spec.Status == v1alpha1.VEXAffected || spec.Status == v1alpha1.VEXUnderInvestigation) {
		return Draft{}, fmt.Errorf("its status is %s, and such an exception must end: give --until", spec.Status)
	}
	spec.Vulnerabilities = attached.NamesOf(&statement.Vulnerability)
	if len(spec.Vulnerabilities) == 0 {
		return Draft{}, errors.New("it names no vulnerability")
	}
	if first := spec.Vulnerabilities[0]; attached.IsAddress(first) {
		return Draft{}, fmt.Errorf("%q contains no ID of a known form: set the name of the vulnerability", first)
	}
	if err := selectProducts(&spec, statement.Products); err != nil {
		return Draft{}, err
	}
	about := fmt.Sprintf("%q %q %q", spec.Vulnerabilities, spec.Images, spec.Packages)
	return Draft{Name: fmt.Sprintf("%s-%.4x", Name(spec.Vulnerabilities[0]), sha256.Sum256([]byte(about))), Spec: spec}, nil
}

// reasonOf returns why: the impact statement, the notes, or where the statement comes from.
func reasonOf(document *vex.VEX, statement *vex.Statement) string {
	return cmp.Or(statement.ImpactStatement, statement.StatusNotes, "OpenVEX document of "+cmp.Or(document.Author, "an unknown author")+": "+document.ID)
}

// selectProducts sets images and packages. All products of a statement must have the same subcomponents, or an exception with all images and all
// packages would be about more.
func selectProducts(spec *v1alpha1.ExceptionSpec, products []vex.Product) error {
	if len(products) == 0 {
		return errors.New("it has no products, so it is not known which images it is about")
	}
	var onlyPackages bool
	for i, product := range products {
		purl, err := purlOf(&product.Component)
		if err != nil {
			return err
		}
		packages, err := selectorsOf(product.Subcomponents)
		if err != nil {
			return err
		}
		isPackage := purl.Type != packageurl.TypeOCI && purl.Type != packageurl.TypeDocker
		if isPackage {
			if len(packages) > 0 {
				return fmt.Errorf("the product %s is no image, and has subcomponents", purl.ToString())
			}
			selector, err := selectorOf(purl)
			if err != nil {
				return err
			}
			spec.Packages = append(spec.Packages, selector)
		} else {
			glob, err := globOf(purl)
			if err != nil {
				return err
			}
			spec.Images = append(spec.Images, glob)
			if i > 0 && !slices.Equal(spec.Packages, packages) {
				return errors.New("its products have different subcomponents: make a statement of each")
			}
			spec.Packages = packages
		}
		if i > 0 && isPackage != onlyPackages {
			return errors.New("its products are images and packages: make a statement of each")
		}
		onlyPackages = isPackage
	}
	return nil
}

// purlOf returns the package URL of a component.
func purlOf(component *vex.Component) (packageurl.PackageURL, error) {
	id := cmp.Or(component.Identifiers[vex.PURL], component.ID)
	purl, err := packageurl.FromString(id)
	if err != nil {
		return packageurl.PackageURL{}, fmt.Errorf("%q is no package URL, so it is not known which images or packages it is about", id)
	}
	return purl, nil
}

// globOf returns the glob of an image: its repository, with its digest or tag if the URL has one.
func globOf(purl packageurl.PackageURL) (string, error) {
	repository, tag := purl.Qualifiers.Map()["repository_url"], purl.Qualifiers.Map()["tag"]
	version, err := url.PathUnescape(purl.Version)
	isDigest := strings.HasPrefix(version, "sha256:")
	switch {
	case err != nil:
		return "", err
	case strings.ContainsAny(repository+purl.Name+version+tag, "*?"):
		return "", fmt.Errorf("%s has * or ? in it, which an exception takes for a glob", purl.ToString())
	case repository == "" && !isDigest:
		return "", fmt.Errorf("%s has neither a digest nor a repository_url", purl.ToString())
	case repository == "":
		repository = "*"
	default:
		named := exception.RepositoriesOf(purl)
		if len(named) == 0 {
			return "", fmt.Errorf("%s has a repository_url that names no repository", purl.ToString())
		}
		repository = named[len(named)-1] // with the image's name
	}
	switch {
	case isDigest:
		return repository + "@" + version, nil
	case version != "" || tag != "":
		return repository + ":" + cmp.Or(version, tag), nil
	}
	return repository, nil
}

func selectorsOf(subcomponents []vex.Subcomponent) (selectors []v1alpha1.PackageSelector, err error) {
	for _, subcomponent := range subcomponents {
		purl, err := purlOf(&subcomponent.Component)
		if err != nil {
			return nil, err
		}
		selector, err := selectorOf(purl)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(selectors, selector) {
			selectors = append(selectors, selector)
		}
	}
	return selectors, nil
}

// selectorOf returns the package that a URL names, as findings name it.
func selectorOf(purl packageurl.PackageURL) (v1alpha1.PackageSelector, error) {
	selected, err := exception.PackageOf(purl)
	return v1alpha1.PackageSelector{Name: selected.FullName(), Version: selected.Version, Type: selected.Type}, err
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Name returns the name of an object for an ID or a package.
func Name(id string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(id), "-"), "-")
	if len(name) > maxNameBytes {
		name = strings.Trim(name[:maxNameBytes], "-")
	}
	return cmp.Or(name, "exception")
}
