package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/receiverstandin/standin"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// DefectDojo has a test, and Dependency-Track a project, for each of two workloads that run the same image. An import whose answer was lost is repeated
// and changes nothing.
func TestExports(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "exports")
	must(t, env.DefectDojoLosesAnswer(t.Context(), ns))
	must(t, env.RunPods(t.Context(), ns,
		scenario.Pod{Name: "first", Image: env.Reference(images.API)}, scenario.Pod{Name: "second", Image: env.Reference(images.API)}))
	must(t, env.MakeSecrets(t.Context(), ns, map[string]map[string]string{
		"dojo":  {"address": scenario.ReceiverURL(ns, standin.DefectDojoPath), "token": standin.Token},
		"track": {"address": scenario.ReceiverURL(ns, standin.DependencyTrackPath), "token": standin.Token},
	}))
	must(t, env.ApplyText(t.Context(), scannerWith(ns, "exports",
		"{name: dojo, defectDojo: {secretRef: {name: dojo}, engagement: e2e}}", "{name: track, dependencyTrack: {secretRef: {name: track}, projectVersion: e2e}}")))
	waitFor(t, "both exports", func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err != nil {
			return err
		}
		for _, export := range scanner.Status.Exports {
			if export.Workloads != 2 || export.Pending+export.Waiting > 0 || export.LastError != "" {
				return fmt.Errorf("the export is %+v", export)
			}
		}
		if len(scanner.Status.Exports) != 2 {
			return fmt.Errorf("the Scanner has the exports %+v", scanner.Status.Exports)
		}
		return nil
	})

	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	titles := map[string]bool{}
	for _, f := range imageNamed(t, stored, images.API).Findings {
		titles[fmt.Sprintf("%s in %s (%s)", f.ID, f.Package.Name, f.Package.Type)] = true
	}
	got, err := env.Received(t.Context(), ns)
	must(t, err)
	want, imports := map[string][]string{}, 0
	for _, pod := range []string{"first", "second"} {
		want[ns+"/e2e/Pod/"+pod+" (Grype)"] = slices.Sorted(maps.Keys(titles))
	}
	open := map[string][]string{}
	for name, test := range got.Tests {
		open[name], imports = test.Open, imports+test.Imports
	}
	if diff := cmp.Diff(want, open); diff != "" {
		t.Errorf("open findings in DefectDojo (-store +got):\n%s", diff)
	}
	if imports != 3 {
		t.Errorf("%d imports to DefectDojo, want one for each workload, and one again whose answer was lost", imports)
	}
	for _, pod := range []string{"first", "second"} {
		project := got.Projects[ns+"/Pod/"+pod+"/main@e2e"]
		if project.Uploads != 1 || !slices.Contains(project.Components, "golang.org/x/net") {
			t.Errorf("Dependency-Track's project of the pod %s has %d uploads and the components %q, want one with golang.org/x/net", pod, project.Uploads, project.Components)
		}
	}
	if len(got.Projects) != 2 || len(got.Refused) > 0 {
		t.Errorf("Dependency-Track has the projects %q, want one for each workload; refused: %q", slices.Sorted(maps.Keys(got.Projects)), got.Refused)
	}
}
