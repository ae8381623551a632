package slack

import (
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/ui"
)

// titlePage returns the page of the web UI that shows what a message is about; "" for none.
func titlePage(d announce.Message) string {
	if d.WebUI == "" {
		return ""
	}
	page, id := d.ReadMore, d.SingleVulnerability()
	if named := d.Exploited(); named != nil {
		id = named.ID
	}
	switch {
	case isOnlyNotices(d) && d.ScannerKind == announce.ClusterScannerKind:
		page = ui.PageURL(d.WebUI, ui.ClusterScannerPage, nil, d.Scanner)
	case isOnlyNotices(d):
		page = ui.PageURL(d.WebUI, ui.ScannerPage, nil, d.Namespace, d.Scanner)
	case id != "":
		page = ui.PageURL(d.WebUI, ui.VulnerabilityPage, map[string]string{"namespace": namespaceOf(d)}, id)
	}
	if !linkable(page) {
		return ""
	}
	return page
}

// repositoryPage returns where the findings of a repository are: the page of its images, or where all findings are. A page of images is of
// one namespace.
func repositoryPage(d announce.Message, repository string) string {
	if namespace := namespaceOf(d); d.WebUI != "" && namespace != "" && repository != "" {
		if page := ui.PageURL(d.WebUI, ui.ImagesPage, map[string]string{"namespace": namespace, "text": announce.FamiliarName(repository)}); linkable(page) {
			return page
		}
	}
	return d.ReadMore
}

// namespaceOf returns the only namespace that a message is about, or "".
func namespaceOf(d announce.Message) string {
	if d.ScannerKind == announce.ClusterScannerKind && len(d.OnlyNamespaces) == 1 && d.MoreOnlyNamespaces <= 0 {
		return d.OnlyNamespaces[0]
	}
	return d.Namespace
}

// linkedTitle adds the title as a link, or as a header if it has none. A header cannot have links.
func (m *message) linkedTitle(d announce.Message) {
	text, page := Title(d), titlePage(d)
	if page == "" || strings.ContainsAny(text, "|*`~") {
		m.header(text)
		return
	}
	m.section("*" + linkTo(page, text) + "*")
}
