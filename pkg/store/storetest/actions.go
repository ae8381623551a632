package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// repositoryModel is what sightModel knows of one repository in some namespaces.
type repositoryModel struct {
	urgency   int
	workloads map[string]bool
	reports   map[reportKey]*runningReport
}

// runningReport is the findings of a report, and the namespaces in which the repository's image runs.
type runningReport struct {
	findings   []finding.Finding
	namespaces map[string]bool
}

// isActionable reports whether a finding is worth acting on, and how urgent it makes its image.
func (m *sightModel) isActionable(k reportKey, f finding.Finding) (urgency int, is bool) {
	if !f.Fixable() {
		return 0, false
	}
	if m.shared[[2]string{f.ID, k.engine}].KnownExploited {
		urgency = 1 << 40
	}
	switch f.Severity {
	case finding.Critical:
		urgency += 1 << 20
	case finding.High:
		urgency++
	}
	return urgency, urgency > 0
}

// repositories returns the repositories with something to act on in some namespaces.
func (m *sightModel) repositories(namespaces []string) map[string]*repositoryModel {
	all := make(map[string]*repositoryModel)
	for u, usage := range m.usages {
		if slices.Contains(namespaces, u.namespace) {
			for k, findings := range m.reportsOf(u, usage) {
				m.addActionable(all, k, findings, usage)
			}
		}
	}
	return all
}

// addActionable adds a report about an image to the repositories of the workloads that run it.
func (m *sightModel) addActionable(all map[string]*repositoryModel, k reportKey, findings []finding.Finding, usage store.ImageUsage) {
	urgency := 0
	for _, f := range findings {
		n, _ := m.isActionable(k, f)
		urgency += n
	}
	if urgency == 0 {
		return
	}
	for _, w := range usage.Workloads {
		r := all[w.Repository]
		if r == nil {
			r = &repositoryModel{workloads: make(map[string]bool), reports: make(map[reportKey]*runningReport)}
			all[w.Repository] = r
		}
		if r.reports[k] == nil {
			r.reports[k] = &runningReport{findings, make(map[string]bool)}
		}
		r.reports[k].namespaces[usage.Namespace] = true
		r.workloads[w.Namespace+"/"+w.Name] = true
		r.urgency = max(r.urgency, urgency)
	}
}

// checkActions compares the actions in some namespaces with those of the model. An exception may suppress a vulnerability, in one namespace or in all.
func (m *sightModel) checkActions(t *rapid.T) {
	namespaces := rapid.SliceOfNDistinct(rapid.SampledFrom(sightNamespaces), 0, len(sightNamespaces), rapid.ID).Draw(t, "namespaces")
	seen := store.Sight{All: len(namespaces) == len(sightNamespaces), Namespaces: namespaces}
	var exceptions []exception.Exception
	if rapid.Bool().Draw(t, "with an exception") {
		exceptions = append(exceptions, exception.Exception{
			UID: "1", Name: "one", Namespace: pick(t, []string{"", "shop", "blog"}, "namespace"), Vulnerabilities: []string{pick(t, []string{"CVE-2026-0001", "cve-2026-0002"}, "id")},
		})
	}
	isSuppressed := func(f finding.Finding, in map[string]bool) bool {
		return len(exceptions) > 0 && containsFold(f.ID, exceptions[0].Vulnerabilities[0]) &&
			(exceptions[0].Namespace == "" || len(in) == 1 && in[exceptions[0].Namespace])
	}
	repositories := m.repositories(namespaces)
	names := slices.SortedFunc(maps.Keys(repositories), func(a, b string) int {
		if before, after := repositories[a].urgency, repositories[b].urgency; before != after {
			return after - before
		}
		return cmpString(a, b)
	})
	var want []string
	for _, name := range names {
		ends := make(map[string]bool)
		for k, r := range repositories[name].reports {
			for _, f := range r.findings {
				if _, is := m.isActionable(k, f); is && !isSuppressed(f, r.namespaces) {
					ends[f.Package.Name+" ends "+f.ID] = true
				}
			}
		}
		if len(ends) > 0 {
			want = append(want, fmt.Sprint(name, " in ", slices.Sorted(maps.Keys(repositories[name].workloads)), ": ", slices.Sorted(maps.Keys(ends))))
		}
	}
	asked := store.ActionsQuery{Seen: seen, Exceptions: exception.NewSet(exceptions, m.clock.Now())}
	var found []string
	for after := (store.ActionCursor{}); ; {
		page := got[store.ActionsPage](t)(m.ActionsPage(context.Background(), asked, after, rapid.IntRange(1, 3).Draw(t, "limit")))
		compare(t, "number of repositories", page.Total, len(names))
		for _, r := range page.Repositories {
			found = append(found, describeActions(t, r))
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	compare(t, fmt.Sprintf("actions in %q with %+v", namespaces, exceptions), found, want)
}

// describeActions describes the actions of a repository as checkActions does. It fails the test if a count is not that of the findings.
func describeActions(t *rapid.T, r store.RepositoryActions) string {
	workloads, ends := make(map[string]bool), make(map[string]bool)
	for _, w := range r.Workloads {
		workloads[w.Namespace+"/"+w.Name] = true
	}
	for _, a := range r.Actions {
		for _, f := range a.Ends {
			if ended := a.PackageName + " ends " + f.ID; ends[ended] {
				t.Fatalf("two actions in %s: %s", r.Repository, ended)
			} else {
				ends[ended] = true
			}
		}
		if counted := a.Counts.Of(finding.Critical) + a.Counts.Of(finding.High); counted > len(a.Ends) || a.Counts.Fixable != len(a.Ends) {
			t.Fatalf("an action that ends %d findings has the counts %+v", len(a.Ends), a.Counts)
		}
	}
	return fmt.Sprint(r.Repository, " in ", slices.Sorted(maps.Keys(workloads)), ": ", slices.Sorted(maps.Keys(ends)))
}

// testActions checks what an action says: the update, what it ends, since when, and who runs it. Exceptions take findings out of it.
func (on suite) testActions(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "api")
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	f.use(t, "scanner", "api", workload("api", "ghcr.io/shop/api"))
	began := f.clock.Now()
	critical, high := vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed), vulnerable("CVE-2026-0002", "openssl", fixed)
	f.report(t, "web", critical, high, vulnerable("CVE-2026-0003", "openssl"), vulnerable("CVE-2026-0004", "zlib", severity(finding.Medium), fixed))
	f.report(t, "api", vulnerable("CVE-2026-0005", "curl"))
	f.clock.pass(time.Hour)
	f.report(t, "api", vulnerable("CVE-2026-0005", "curl", severity(finding.Low), fixed, exploited))
	actions := func(exceptions ...exception.Exception) (lines []string) {
		asked := store.ActionsQuery{Seen: store.Sight{Namespaces: []string{"shop"}}, Exceptions: exception.NewSet(exceptions, f.clock.Now())}
		for _, r := range got[store.ActionsPage](t)(f.ActionsPage(t.Context(), asked, store.ActionCursor{}, 10)).Repositories {
			for _, a := range r.Actions {
				line := fmt.Sprint(r.Repository, " run by ", r.Workloads[0].Name, ": ", a.PackageName, " ", a.Installed, " to ", a.FixVersions, " ends")
				for _, ended := range a.Ends {
					line += fmt.Sprint(" ", ended.ID, " since ", ended.Since.Sub(began))
				}
				lines = append(lines, line)
			}
		}
		return lines
	}
	api := "ghcr.io/shop/api run by api: curl [1.0] to [1.1] ends CVE-2026-0005 since 1h0m0s"
	equal(t, "actions", actions(), []string{
		api, "ghcr.io/shop/web run by web: openssl [1.0] to [1.1] ends CVE-2026-0001 since 0s CVE-2026-0002 since 0s",
	})
	ofWeb := exception.Exception{UID: "1", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0001"}, Images: []string{"*/web"}}
	equal(t, "with an exception", actions(ofWeb), []string{api, "ghcr.io/shop/web run by web: openssl [1.0] to [1.1] ends CVE-2026-0002 since 0s"})
	ofWeb.Vulnerabilities = append(ofWeb.Vulnerabilities, "CVE-2026-0002")
	equal(t, "with an exception for all that the update ends", actions(ofWeb), []string{api})
	ofWeb.Namespace = "blog"
	equal(t, "with an exception of another namespace", len(actions(ofWeb)), 2)
}
