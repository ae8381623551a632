# Scanner Operator. "make help" lists the targets; a newcomer wants "make demo".

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

VERSION  ?= dev
# Between releases, the programs print the commit that they were built from. A release is identified by its version. Its images
# must not depend on the commit, since the tagged commit contains their digests (docs/understand/decisions/0020-images-of-a-release.md).
COMMIT ?= $(if $(filter dev,$(VERSION)),$(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null))
REGISTRY ?= 198.51.100.10:5000/scanner-operator
PLATFORMS ?= linux/$(shell go env GOARCH)

# Programs are static and do not depend on the machine that builds them. Tests and linters use the same flags, so that each
# package is compiled only once.
export GOFLAGS := -trimpath -buildvcs=false
export CGO_ENABLED := 0
GO_BUILD := go build
# The linter's cache contains absolute paths, unlike the compiler's, so each checkout has its own.
export GOLANGCI_LINT_CACHE ?= $(CURDIR)/bin/lint-cache

# All modules of the project. hack/cluster/programs and hack/tools only pin third-party modules.
MODULES := . cmd/kubectl-scanner workerapi registry worker hack/bundle pkg/store/storetest/mysqlgrammar
ALL_MODULES = $(patsubst %/,%,$(dir $(shell git ls-files --cached --others --exclude-standard '*go.mod')))

# With KUBECONFIG set, that cluster is used instead of the local one.
AGAIN := $(MAKE) --no-print-directory
RUN := hack/cluster/run.sh
CLUSTER := hack/cluster/cluster.sh
NEED_CLUSTER := $(if $(KUBECONFIG),,cluster-up)

##@ General

.PHONY: help
help: ## Explain every target
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nSettings: KUBECONFIG (another cluster than the local one), KUBERNETES_VERSION (of the local one, now 1.37), REGISTRY, VERSION, PLATFORMS, BACKEND (of the demo: grype or clair), STORE (of the demo: sqlite or postgres), SCANNER_CACHE\n'

.PHONY: demo
demo: ## All scenarios of the demo on a real cluster, from nothing; CI=1 checks each step, tears down, needs no terminal; BACKEND=clair, STORE=postgres
	@CI=$(CI) BACKEND=$(BACKEND) STORE=$(STORE) REGISTRY=$(REGISTRY) VERSION=$(VERSION) COMMIT=$(COMMIT) PLATFORMS=$(PLATFORMS) hack/demo/demo.sh

.PHONY: demo-ui
demo-ui: ## Open the web UI of the demo at https://localhost:8444 until Ctrl-C; UI_ADDRESS=localhost:9444 for another port
	@$(AGAIN) bin/demo
	@UI_ADDRESS=$(UI_ADDRESS) bin/demo ui

.PHONY: demo-down
demo-down: ## Remove what the demo made in the cluster; "make cluster-down" removes the cluster too
	@$(AGAIN) bin/demo
	$(RUN) bin/demo down

# The programs that the demo and the end-to-end tests run. They are compiled first, since the local cluster's network has no
# module proxy.
.PHONY: fixture-images
fixture-images: bin/demo
	bin/demo build

# Clair from its Go module, PostgreSQL from Debian's packages.
.PHONY: clair-images
clair-images: bin/demo
	bin/demo build-clair

# From Debian's packages.
.PHONY: postgresql-image
postgresql-image: bin/demo
	bin/demo build-postgresql

# The stand-in for programs that receive messages and exports.
.PHONY: integration-images
integration-images: bin/demo
	bin/demo build-integrations

# OLM and opm from their Go modules, and OLM's CRDs from its module.
.PHONY: olm-images
olm-images: bin/demo bin/opm
	bin/demo build-olm
	rm -rf bin/olm-crds && mkdir -p bin/olm-crds
	cd hack/tools/olm && go mod download github.com/operator-framework/operator-lifecycle-manager # "go list" does not download
	cp "$$(cd hack/tools/olm && go list -m -f '{{.Dir}}' github.com/operator-framework/operator-lifecycle-manager)"/deploy/chart/crds/*.yaml bin/olm-crds/

##@ Development

.PHONY: build
build: bin/kubectl-scanner ## Compile everything, for this machine, into bin/
	$(GO_BUILD) -o bin/ ./cmd/...
	cd worker && $(GO_BUILD) -o ../bin/ ./cmd/...

.PHONY: generate
generate: manifests bin/controller-gen bin/oapi-codegen ## Write all generated files: deep copies, CRDs, RBAC role, the chart's copies, REST API, types of the web UI, field tables and pictures of docs/
	bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...
	bin/oapi-codegen -config api/rest/v1/generate.yaml api/rest/v1/openapi.yaml
	bin/oapi-codegen -config api/rest/v1/client/generate.yaml api/rest/v1/openapi.yaml
	go run ./hack/apitypes api/rest/v1/openapi.yaml ui/src/api.gen.ts
	go run ./hack/apidoc config/crd/bases/scanner-operator.io_scanners.yaml docs/use/scanner.md
	go run ./hack/apidoc config/crd/bases/scanner-operator.io_clusterscanners.yaml docs/operate/clusterscanner.md
	go run ./hack/apidoc config/crd/bases/scanner-operator.io_imagescans.yaml docs/use/imagescan.md
	go run ./hack/apidoc config/crd/bases/scanner-operator.io_{,cluster}vulnerabilityexceptions.yaml docs/use/exceptions.md
	go run ./hack/chart config charts/scanner-operator
	go run ./hack/apidoc charts/scanner-operator/values.yaml docs/operate/install/helm.md
	go run ./hack/slackcards docs/images/notifications $(PICTURES:%=notifier/slack/testdata/%.golden.json)
	$(AGAIN) bundle catalog

# The messages that docs/use/notifications.md shows as pictures.
PICTURES := first-scan cluster-first-scan namespaces-joined new fix-available escalated exploited regressed fixed exception-ended new-image new-images mixed \
	engine-changed engine-updated filter-widened baseline-renewed store-restored troubles troubles-over exception-expires \
	unconfirmed web-ui scheduled-summary

.PHONY: manifests
manifests: bin/controller-gen ## Write only the CRDs and the manager's RBAC role, from the markers in the code
	bin/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	bin/controller-gen rbac:roleName=scanner-operator-manager paths=./controllers/... paths=./pkg/... paths=./cmd/manager/... output:rbac:dir=config/rbac

.PHONY: ui
ui: ui/node_modules/installed.json ## Build the web UI into ui/dist, which the manager embeds; needs Node.js 20.19 or newer with npm
	cd ui && node_modules/.bin/tsc && node_modules/.bin/vite build --logLevel warn

ui/node_modules/installed.json: ui/package.json ui/package-lock.json
	hack/browser.sh node npm
	cd ui && npm ci --prefer-offline && cp package-lock.json node_modules/installed.json

.PHONY: docs
docs: ## Build the documentation as a static site with search into bin/site; needs Node.js 18 or newer with npm
	@command -v npm >/dev/null || { echo "make docs needs Node.js 18 or newer with npm, on Debian: apt-get install nodejs npm" >&2; exit 1; }
	mkdir -p bin/site-work
	rm -rf bin/site bin/site-work/pages bin/site-work/.vitepress
	cp -r hack/site/. bin/site-work
	cp -r docs bin/site-work/pages
	cd bin/site-work && { cmp -s package-lock.json node_modules/installed.json || \
		{ npm ci --ignore-scripts --no-audit --no-fund && cp package-lock.json node_modules/installed.json; }; }
	cd bin/site-work && SITE_OUT=../site node_modules/.bin/vitepress build .

.PHONY: fmt
fmt: bin/golangci-lint ## Format the code as the linter wants it
	for module in $(MODULES); do (cd $$module && $(CURDIR)/bin/golangci-lint fmt --config $(CURDIR)/.golangci.yml); done

.PHONY: vet
vet: ## Run go vet on every module
	for module in $(MODULES); do (cd $$module && go vet ./...); done

.PHONY: lint
lint: bin/golangci-lint bin/crdlint bin/actionlint bin/wordlint ## Check code, API, shell scripts, workflows and words
	bin/wordlint
	for module in $(MODULES); do (cd $$module && echo "golangci-lint: $$module" && $(CURDIR)/bin/golangci-lint run --config $(CURDIR)/.golangci.yml ./...); done
	bin/crdlint config/crd/bases/*.yaml
	bin/actionlint
	@if command -v shellcheck >/dev/null; then shellcheck -x .ci/run $$(find hack -name '*.sh'); \
	else echo "lint: shellcheck is not installed (apt-get install shellcheck): the shell scripts were not checked"; fi

.PHONY: lint-api
lint-api: bin/golangci-lint ## Check the API with kube-api-linter; needs GitHub, so "make lint" has a check of its own instead
	cd hack/tools/kube-api-linter && $(CURDIR)/bin/golangci-lint custom
	bin/golangci-lint-kube-api-linter run --config .golangci-kal.yml ./api/...

.PHONY: govulncheck
govulncheck: bin/govulncheck ## Look for known vulnerabilities in what our programs call; needs vuln.go.dev
	for module in $(MODULES); do (cd $$module && echo "govulncheck: $$module" && $(CURDIR)/bin/govulncheck ./...); done

.PHONY: verify
verify: generate tidy ## Regenerate everything and fail when a file differs from what is committed
	@changed=$$(git status --porcelain); if [ -n "$$changed" ]; then \
	  echo "verify: these files differ from what is committed; run 'make generate tidy', look at them and commit:"; echo "$$changed"; git --no-pager diff --stat; exit 1; \
	fi; echo "verify: everything that is generated is as committed"

.PHONY: tidy
tidy: ## Bring go.mod and go.sum of every module up to date
	for module in $(ALL_MODULES); do (cd $$module && go mod tidy) || { echo "tidy: go mod tidy failed in $$module"; exit 1; }; done

.PHONY: clean
clean: ## Remove bin/ (built programs of the cluster stay in the cache)
	rm -rf bin

##@ Tests

.PHONY: test
test: bin/grype bin/helm bin/promtool ## Unit tests, controller tests against a real API server, worker tests; the race detector where it matters
	@hack/test.sh

.PHONY: ui-test
ui-test: ui bin/manager bin/ui-test ## Test the web UI in Chromium, with the real manager on an API server; screenshots in bin/screenshots; ONLY=session selects
	hack/browser.sh chromium
	KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) bin/ui-test $(if $(ONLY),-only=$(ONLY))

.PHONY: ui-pictures
ui-pictures: ## Write the pictures of the web UI in docs/images/ui from the screenshots of the last "make demo CI=1"
	go run ./hack/uipictures bin/demo-logs docs/images/ui

# Programs that the tests need besides the operator's images. They are compiled first, since the local cluster's network has no
# module proxy.
E2E_PROGRAMS := fixture-images clair-images integration-images bin/e2e.test bin/kubectl-scanner bin/grype bin/clairctl

.PHONY: e2e
e2e: $(NEED_CLUSTER) images $(E2E_PROGRAMS) ## End-to-end tests on a real cluster; E2E_ARGS='-test.run Demo' selects
	$(AGAIN) e2e-run

# Only the tests. The cluster must be up, and everything must be built and pushed.
.PHONY: e2e-run
e2e-run:
	cd test/e2e && GRYPE=$(CURDIR)/bin/grype CLAIRCTL=$(CURDIR)/bin/clairctl REGISTRY=$(REGISTRY) ../../$(RUN) ../../bin/e2e.test -test.v -test.count=1 -test.parallel=4 -test.timeout=45m $(E2E_ARGS)

.PHONY: e2e-install
e2e-install: $(NEED_CLUSTER) images fixture-images postgresql-image olm-images previous-images bin/bundle bin/helm bin/helm4 bin/manager bin/install.test ## Install, upgrade and remove with each installer, on a real cluster; E2E_ARGS='-test.run OLM' selects
	HELM=$(CURDIR)/bin/helm HELM4=$(CURDIR)/bin/helm4 go test -count=1 -run 'Lint|Helm4' ./test/chart
	cd test/install && REGISTRY=$(REGISTRY) ../../$(RUN) ../../bin/install.test -test.v -test.count=1 -test.shuffle=on -test.timeout=60m $(E2E_ARGS)

# An upgrade of two replicas to a version with another schema, and back, under requests.
.PHONY: e2e-ha
e2e-ha: $(NEED_CLUSTER) images newer-images fixture-images postgresql-image bin/helm bin/manager bin/install.test ## Upgrade two managers to a version that adds to the store's schema, and back, while clients read and upload and a browser is open; on a real cluster with PostgreSQL
	hack/browser.sh chromium
	cd test/install && REGISTRY=$(REGISTRY) ../../$(RUN) ../../bin/install.test -test.v -test.count=1 -test.timeout=45m -test.run '^TestHighAvailability$$'

# Tests of what differs between Kubernetes versions: admission policies, Jobs and their pods, pull secrets, finalizers, the
# schema.
SMOKE := ^(TestDemo|TestPrivateRegistry|TestPoliciesAreWellTyped|TestStolenManagerToken|TestRestrictedPodSecurity|TestSidecarInjection|TestScannerDeletion)

.PHONY: e2e-matrix
e2e-matrix: ui bin/image-builder $(E2E_PROGRAMS) ## A part of the end-to-end tests on each version of Kubernetes, one after the other; VERSIONS="1.34 1.37" selects
	bin/image-builder build -version=$(VERSION) -commit=$(COMMIT) -platforms=$(PLATFORMS)
	VERSIONS="$(VERSIONS)" hack/cluster/matrix.sh $(AGAIN) e2e-on-version

.PHONY: e2e-on-version
e2e-on-version:
	$(RUN) bin/image-builder push -version=$(VERSION)
	$(AGAIN) e2e-run E2E_ARGS="-test.run '$(SMOKE)'"

# For machines with Docker, such as the runners of pull requests.
.PHONY: kind-up kind-e2e kind-down
kind-up: bin/kind ## Start a kind cluster and a registry in Docker
	hack/kind/kind.sh up

kind-e2e: ## The end-to-end tests on the kind cluster
	hack/kind/kind.sh run $(AGAIN) e2e

kind-down: ## Remove the kind cluster and its registry
	hack/kind/kind.sh down

# The tests that compare random histories with a simple model.
HISTORIES := TestEverythingIsAnnouncedOnce|TestContract/SQLite/(Announcements|TheStore|Lives)Agree

.PHONY: explore
explore: ## Other random histories of findings and messages than "make test" draws, CHECKS=1000 of each kind; SEED repeats
	go test ./pkg/announce ./pkg/store -timeout 0 -run '$(HISTORIES)' -rapid.seed=$(or $(SEED),0) -rapid.checks=$(or $(CHECKS),1000)

.PHONY: fuzz
fuzz: ## Random input for each parser of foreign bytes, FUZZTIME=1m (or 100000x, MAXTIME=3m at most) for each of the fuzz targets; ONLY=pkg/image selects, SHARD=2/4 the second of four parts, PARALLEL sets the processes
	@FUZZTIME=$(FUZZTIME) MAXTIME=$(MAXTIME) ONLY='$(ONLY)' SHARD=$(SHARD) PARALLEL=$(PARALLEL) hack/fuzz.sh run

.PHONY: e2e-crash
e2e-crash: bin/crash ## Kill manager and notifier 200 times while messages go out, then count lost and doubled ones; STORE=postgres or mariadb, there with two managers; SUSPEND=1 suspends the leader instead; KILLS=20 is quick, SEED repeats
	$(GO_BUILD) -o bin/ ./cmd/...
	KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) bin/crash -store=$(or $(STORE),sqlite) -kills=$(or $(KILLS),200) -seed=$(or $(SEED),0) $(if $(SUSPEND),-suspend)

# Only the local cluster has processes that can be killed. What connects the operator's pods is in its packet filter.
.PHONY: e2e-chaos
e2e-chaos: cluster-up images fixture-images postgresql-image bin/grype bin/chaos ## Random faults on the local cluster for DURATION=30m: kills, cut and slow connections, a full disk, throttling; then count what is lost, doubled or differs from grype; STORE=sqlite or postgres (default: half of the time each), SEED repeats
	GRYPE=$(CURDIR)/bin/grype REGISTRY=$(REGISTRY) $(RUN) bin/chaos -duration=$(or $(DURATION),30m) -seed=$(or $(SEED),0) $(if $(STORE),-stores=$(STORE))

# All parts except the last run on this machine without a cluster, the part with Clair as root. They run first, so that a
# cluster does not use the processors.
BENCH_HERE := rematch catalog scale scale-largest scanners cluster store store-postgres store-mariadb clair noise ui api exports sboms
BENCH_STORE = $(or $(filter store store-postgres store-mariadb,$(patsubst store-sqlite,store,store$(addprefix -,$(STORE)))),$(error STORE is sqlite, postgres or mariadb))
comma := ,
BENCH_PARTS = $(or $(foreach part,$(subst $(comma), ,$(PART)),$(if $(filter store,$(part)),$(BENCH_STORE),$(part) $(if $(filter scale,$(part)),scale-largest))),$(BENCH_HERE) latency)

.PHONY: bench
bench: $(if $(filter-out ui api exports sboms,$(BENCH_PARTS)),bench-programs) $(if $(filter ui,$(BENCH_PARTS)),bench-ui-programs) $(if $(filter api,$(BENCH_PARTS)),bin/bench bin/restapi-bench.test) $(if $(filter exports,$(BENCH_PARTS)),bin/bench) $(if $(filter sboms,$(BENCH_PARTS)),build bin/kwok fixture-images bin/bench bin/measured bin/worker-bench.test) ## Measure, compare with the bounds, write docs/understand/benchmarks.md; PART=store selects (rematch catalog scale scanners cluster store clair noise ui api exports sboms latency), with STORE=sqlite, postgres or mariadb in that database
	@failed=; $(if $(filter $(BENCH_HERE),$(BENCH_PARTS)),KUBEBUILDER_ASSETS=$$($(CLUSTER) assets) bin/bench $(filter $(BENCH_HERE),$(BENCH_PARTS)) || failed=1;) \
	$(if $(filter latency,$(BENCH_PARTS)),hack/cluster/during.sh $(AGAIN) bench-latency || failed=1;) \
	[ -z "$$failed" ] || { echo "bench: something failed; look for 'bench:' and 'broken' above"; exit 1; }

.PHONY: bench-programs
bench-programs: $(if $(filter scale,$(BENCH_PARTS)),bin/trivy-operator) build bin/grype bin/syft bin/kwok bin/clair bin/clairctl fixture-images clair-images bin/bench bin/measured bin/worker-bench.test

.PHONY: bench-ui-programs
bench-ui-programs: ui bin/manager bin/ui-test bin/bench
	hack/browser.sh chromium

.PHONY: bench-latency
bench-latency: images
	REGISTRY=$(REGISTRY) $(RUN) bin/bench latency

##@ Cluster

.PHONY: cluster-up
cluster-up: ## Start a real one-node Kubernetes and a registry on this machine (Debian, root, no Docker)
	@$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove everything it made
	@$(CLUSTER) down

.PHONY: cluster-exec
cluster-exec: export CMD := $(CMD)
cluster-exec: ## Run a command beside the cluster: make cluster-exec CMD="kubectl get pods -A"
	@$(if $(CMD),,$(error give a command: make cluster-exec CMD="kubectl get pods -A"))
	@$(RUN) bash -c "$$CMD"

.PHONY: cluster-status
cluster-status: ## Show which parts of the local cluster run
	@$(CLUSTER) status

##@ Images and deployment

# Another registry is reachable directly; the local one only from inside the cluster's network.
PUSH := $(if $(filter 198.51.100.10:%,$(REGISTRY)),$(RUN))

.PHONY: images
images: $(if $(PUSH),$(NEED_CLUSTER)) ui bin/image-builder ## Build all images without Docker and push them to REGISTRY, tagged VERSION
	bin/image-builder build -version=$(VERSION) -commit=$(COMMIT) -platforms=$(PLATFORMS)
	$(PUSH) bin/image-builder push -version=$(VERSION) -registry=$(REGISTRY)

.PHONY: newer-images
newer-images: images
	hack/newer.sh $(VERSION)-newer $(PLATFORMS)
	$(PUSH) bin/image-builder push -out=bin/newer/bin -version=$(VERSION)-newer -registry=$(REGISTRY)

# The version from which the tests upgrade: until the first release, a commit whose store lacks the newest migration.
PREVIOUS ?= da8fe53b2a8d86228c57f69db576a1b33dabe72d
PREVIOUS_VERSION ?= 0.0.9

.PHONY: previous-images
previous-images: $(if $(PUSH),$(NEED_CLUSTER))
	hack/previous.sh $(PREVIOUS) $(PREVIOUS_VERSION)
	$(PUSH) bash -c 'cd bin/previous && bin/image-builder push -version=$(PREVIOUS_VERSION) -registry=$(REGISTRY)'

.PHONY: deploy
deploy: bin/image-builder ## Install config/default into the cluster, with the images of the last "make images"
	bin/image-builder overlay -registry=$(REGISTRY)
	$(RUN) bash -euo pipefail -c 'kubectl kustomize bin/deploy | kubectl apply --server-side --force-conflicts -f - && \
	  kubectl wait --for=condition=Available --timeout=180s deployment --all-namespaces --selector app.kubernetes.io/name=scanner-operator'

.PHONY: scan-own-images
scan-own-images: ## Scan the deployed operator's own images with it; fails when a high or critical vulnerability has a fix
	$(RUN) hack/scan-own-images.sh

.PHONY: undeploy
undeploy: bin/manager ## Remove the operator and all its resources from the cluster
	$(RUN) hack/undeploy.sh

##@ OLM

# The image that the bundle is published in. The version that it replaces is in config/manifests: spec.replaces.
BUNDLE_IMAGE ?= ghcr.io/scanner-operator/scanner-operator-bundle:$(shell cat VERSION)

.PHONY: bundle
bundle: bin/bundle ## Write bundle/ for OLM, of config/default with the images of config/manifests/images.yaml
	bin/bundle generate

.PHONY: catalog
catalog: bin/bundle ## Write catalog/, a file-based catalog with the bundle in its channels
	rm -rf catalog
	bin/bundle catalog bundle=$(BUNDLE_IMAGE)

.PHONY: bundle-validate
bundle-validate: bin/operator-sdk ## Check bundle/ with the operator-sdk that the community catalogs use; a warning is an error, too
	@said=$$(bin/operator-sdk bundle validate ./bundle --select-optional suite=operatorframework 2>&1) && failed= || failed=1; echo "$$said"; \
	! grep -qE 'level=(warning|error)' <<<"$$said" && [ -z "$$failed" ] || { echo "bundle-validate: the bundle has errors or warnings"; exit 1; }

.PHONY: bundle-submission
bundle-submission: bin/bundle ## Write to bin/submission what a pull request to a community catalog adds; REVIEWERS=alice,bob (GitHub accounts)
	bin/bundle submission -reviewers=$(REVIEWERS)

.PHONY: olm
olm: bin/bundle ## Write bin/olm.yaml, which installs the operator with OLM, and bin/olm-policies.yaml, its admission policies; NAMESPACE of the operator
	bin/bundle installation -namespace=$(or $(NAMESPACE),scanner-operator-system) >bin/olm.yaml
	bin/bundle policies -namespace=$(or $(NAMESPACE),scanner-operator-system) >bin/olm-policies.yaml

##@ Release

# Builds the artifacts of a release without network access, into RELEASE_DIR. Publishing: .github/workflows/release.yaml.
# Preparation: docs/understand/releasing.md.
RELEASE := $(shell cat VERSION)
RELEASE_DIR ?= bin/release
RELEASE_REGISTRY ?= ghcr.io/scanner-operator
RELEASE_PLATFORMS := linux/amd64,linux/arm64

.PHONY: release-dry-run
release-dry-run: bin/cosign ## Make everything that a release is made of in bin/release, twice, and check it; publishes nothing
	rm -rf $(RELEASE_DIR) $(RELEASE_DIR)-again
	$(AGAIN) release-artefacts release-sbom release-checksums release-sign-with-throw-away-key
	$(AGAIN) release-again
	$(AGAIN) release-check

# The artifacts that must be the same in every build.
.PHONY: release-artefacts
release-artefacts: release-images release-manifests release-chart release-bundle release-plugin

.PHONY: release-images
release-images: ui bin/image-builder
	bin/image-builder build -out=$(RELEASE_DIR) -version=$(RELEASE) -platforms=$(RELEASE_PLATFORMS)
	bin/image-builder record -out=$(RELEASE_DIR) -registry=$(RELEASE_REGISTRY)

.PHONY: release-manifests
release-manifests: bin/image-builder
	bin/image-builder overlay -out=$(RELEASE_DIR) -registry=$(RELEASE_REGISTRY)
	kubectl=$$($(CLUSTER) assets kubectl)/kubectl; \
	$$kubectl kustomize $(RELEASE_DIR)/deploy >$(RELEASE_DIR)/install.yaml; \
	$$kubectl kustomize $(RELEASE_DIR)/quickstart >$(RELEASE_DIR)/quickstart.yaml; $$kubectl kustomize config/crd >$(RELEASE_DIR)/crds.yaml

.PHONY: release-chart
release-chart: bin/release-helper bin/helm
	bin/release-helper chart -dir=$(RELEASE_DIR)
	bin/helm lint --strict $(RELEASE_DIR)/scanner-operator-$(RELEASE).tgz
	bin/helm template --kube-version 1.37.0 scanner-operator $(RELEASE_DIR)/scanner-operator-$(RELEASE).tgz >/dev/null

.PHONY: release-plugin
release-plugin: bin/release-helper
	bin/release-helper plugin -dir=$(RELEASE_DIR)

.PHONY: release-bundle
release-bundle: bin/release-helper bin/bundle
	bin/release-helper lock -dir=$(RELEASE_DIR)
	bin/bundle generate -images=$(RELEASE_DIR)/images.lock.yaml -out=$(RELEASE_DIR)/bundle
	bin/bundle policies -images=$(RELEASE_DIR)/images.lock.yaml >$(RELEASE_DIR)/olm-policies.yaml
	bin/bundle installation -images=$(RELEASE_DIR)/images.lock.yaml >$(RELEASE_DIR)/olm.yaml
	bin/bundle installation -images=$(RELEASE_DIR)/images.lock.yaml -source=community-operators -source-namespace=openshift-marketplace \
	  >$(RELEASE_DIR)/olm-openshift.yaml
	bin/release-helper package -dir=$(RELEASE_DIR) scanner-operator-bundle
	bin/bundle catalog -out=$(RELEASE_DIR)/catalog $(RELEASE_DIR)/bundle=$$(sed -n 's/.*"scanner-operator-bundle": "\(.*\)".*/\1/p' $(RELEASE_DIR)/images.json)
	bin/release-helper package -dir=$(RELEASE_DIR) scanner-operator-catalog

.PHONY: release-lock
release-lock: release-images bin/release-helper ## Write the digests of the images of VERSION to config/manifests/images.yaml, and the bundle of them
	bin/release-helper lock -dir=$(RELEASE_DIR)
	cp $(RELEASE_DIR)/images.lock.yaml config/manifests/images.yaml
	$(AGAIN) bundle catalog

.PHONY: publish-api
publish-api: ## Take today's CRDs as those of the last release; only a release does that. From then on they may change by OLM v1's rules alone
	cp config/crd/bases/*.yaml config/crd/published/

.PHONY: release-sbom
release-sbom: bin/syft bin/release-helper
	bin/release-helper platforms -dir=$(RELEASE_DIR)
	mkdir -p $(RELEASE_DIR)/sbom
	cd $(RELEASE_DIR)/platforms && for image in *; do SYFT_CHECK_FOR_APP_UPDATE=false $(CURDIR)/bin/syft scan --quiet \
	  --source-name $(RELEASE_REGISTRY)/$${image%%_*} --source-version $(RELEASE) --output spdx-json=../sbom/$$image.spdx.json oci-dir:$$image; done
	rm -r $(RELEASE_DIR)/platforms
	cd $(RELEASE_DIR)/plugin && for platform in *; do SYFT_CHECK_FOR_APP_UPDATE=false $(CURDIR)/bin/syft scan --quiet \
	  --source-name kubectl-scanner --source-version $(RELEASE) --output spdx-json=../sbom/kubectl-scanner_$$platform.spdx.json dir:$$platform; done

.PHONY: release-checksums
release-checksums: bin/release-helper
	bin/release-helper notes -dir=$(RELEASE_DIR) >$(RELEASE_DIR)/RELEASE_NOTES.md
	bin/release-helper checksums -dir=$(RELEASE_DIR)

# The published signature uses the workflow's identity (keyless), which needs network access and that identity. Here the same
# program signs with a temporary key and verifies the signature.
SIGNATURE := $(RELEASE_DIR)/SHA256SUMS.sigstore.json
.PHONY: release-sign-with-throw-away-key
release-sign-with-throw-away-key: export COSIGN_PASSWORD :=
release-sign-with-throw-away-key: bin/cosign
	rm -f $(RELEASE_DIR)/dry-run.*; trap 'rm -f $(RELEASE_DIR)/dry-run.key' EXIT; \
	bin/cosign generate-key-pair --output-key-prefix $(RELEASE_DIR)/dry-run; \
	bin/cosign sign-blob --yes --key $(RELEASE_DIR)/dry-run.key --tlog-upload=false --use-signing-config=false --bundle $(SIGNATURE) $(RELEASE_DIR)/SHA256SUMS; \
	bin/cosign verify-blob --key $(RELEASE_DIR)/dry-run.pub --insecure-ignore-tlog --bundle $(SIGNATURE) $(RELEASE_DIR)/SHA256SUMS

# Builds in another directory, from the sources under version control only, so that no untracked file and no path affects the
# result.
.PHONY: release-again
release-again:
	copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -c -T - | tar -x -C "$$copy"; \
	mkdir "$$copy/bin"; cp bin/helm "$$copy/bin/"; $(AGAIN) -C "$$copy" release-artefacts RELEASE_DIR=bin/release; \
	rm -rf $(RELEASE_DIR)-again; mv "$$copy/bin/release" $(RELEASE_DIR)-again

.PHONY: release-check
release-check: bin/release-helper
	bin/release-helper check -dir=$(RELEASE_DIR) -again=$(RELEASE_DIR)-again $(if $(TAGGED),-tagged)

# The programs that the rules above use. The project's own programs are always passed to Go, which detects changes. Pinned
# programs are rebuilt when their pin changes.
.PHONY: bin/manager bin/bundle bin/image-builder bin/release-helper bin/demo bin/ui-test bin/e2e.test bin/install.test bin/crdlint bin/wordlint bin/crash bin/chaos bin/bench bin/measured bin/worker-bench.test bin/restapi-bench.test bin/kubectl-scanner
bin/manager: ; $(GO_BUILD) -o $@ ./cmd/manager
bin/bundle: ; cd hack/bundle && $(GO_BUILD) -o ../../$@ .
bin/image-builder: ; $(GO_BUILD) -o $@ ./hack/images
bin/release-helper: ; $(GO_BUILD) -o $@ ./hack/release
bin/kubectl-scanner: ; cd cmd/kubectl-scanner && $(GO_BUILD) -o ../../$@ .
bin/ui-test: ; $(GO_BUILD) -o $@ ./test/ui
bin/demo:   ; $(GO_BUILD) -o $@ ./hack/demo
bin/crdlint: ; $(GO_BUILD) -o $@ ./hack/crdlint
bin/wordlint: ; $(GO_BUILD) -o $@ ./hack/wordlint
bin/crash:  ; $(GO_BUILD) -o $@ ./test/crash
bin/chaos:  ; $(GO_BUILD) -o $@ ./test/chaos
bin/bench:  ; $(GO_BUILD) -o $@ ./test/bench
bin/measured: ; $(GO_BUILD) -o $@ ./test/bench/measured
bin/worker-bench.test: ; cd worker && go test -c -o ../$@ ./bench
bin/restapi-bench.test: ; go test -c -o $@ ./pkg/restapi
bin/e2e.test: ; go test -c -o $@ ./test/e2e
bin/install.test: ; go test -c -o $@ ./test/install

bin/controller-gen: TOOL := sigs.k8s.io/controller-tools/cmd/controller-gen
bin/golangci-lint: TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/grype: TOOL := github.com/anchore/grype/cmd/grype
bin/oapi-codegen: TOOL := github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
bin/syft: TOOL := github.com/anchore/syft/cmd/syft
bin/kwok: TOOL := sigs.k8s.io/kwok/cmd/kwok
bin/kind: TOOL := sigs.k8s.io/kind
bin/govulncheck: TOOL := golang.org/x/vuln/cmd/govulncheck
bin/actionlint: TOOL := github.com/rhysd/actionlint/cmd/actionlint
bin/cosign: TOOL := github.com/sigstore/cosign/v3/cmd/cosign
bin/clair: TOOL := github.com/quay/clair/v4/cmd/clair
bin/helm: TOOL := helm.sh/helm/v3/cmd/helm
bin/helm4: TOOL := helm.sh/helm/v4/cmd/helm
bin/opm: TOOL := github.com/operator-framework/operator-registry/cmd/opm
bin/opm: TAGS := -tags json1,containers_image_openpgp,exclude_graphdriver_btrfs
bin/operator-sdk: TOOL := github.com/operator-framework/operator-sdk/cmd/operator-sdk
bin/operator-sdk: TAGS := -tags containers_image_openpgp
bin/clairctl: TOOL := github.com/quay/clair/v4/cmd/clairctl

# Tools share a module where they build with each other's versions. Grype and Syft are apart from the others: the reference for the
# worker's findings must be built from the versions that Grype itself requires.
SHARED_PINS := bin/controller-gen bin/golangci-lint bin/govulncheck bin/oapi-codegen bin/grype bin/syft bin/clair bin/clairctl
OWN_PINS := bin/kwok bin/opm bin/operator-sdk bin/helm bin/helm4 bin/actionlint bin/cosign bin/kind
bin/controller-gen bin/golangci-lint bin/govulncheck bin/oapi-codegen: hack/tools/code/go.mod hack/tools/code/go.sum
bin/grype bin/syft: hack/tools/grype/go.mod hack/tools/grype/go.sum
bin/clair bin/clairctl: hack/tools/clair/go.mod hack/tools/clair/go.sum
$(OWN_PINS): bin/%: hack/tools/%/go.mod hack/tools/%/go.sum
$(SHARED_PINS) $(OWN_PINS):
	@echo "building $@ (pinned in $<)"
	@cd $(<D) && $(GO_BUILD) $(TAGS) -ldflags '-s -w' -o $(CURDIR)/$@ $(TOOL)
	@touch $@

bin/trivy-operator: hack/trivy-operator.sh
	@hack/trivy-operator.sh

# Debian's promtool, for the tests of the alerts. Without it, the tests are skipped.
bin/promtool:
	@hack/promtool.sh
