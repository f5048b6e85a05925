# SPDX-License-Identifier: Apache-2.0
# Sealane: the multicluster network of Karmada. `make help` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED ?= 0
# Tests take processors, of which there are two, and not memory: API servers and agents collect garbage less often.
test-project test-tools test-e2e: export GOGC ?= 400
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -s -w -X github.com/sealane-io/sealane/internal/version.Version=$(VERSION)
# A comma in an argument of a function of make begins the next argument.
comma       := ,
GOLANGCI    := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM   := go run gotest.tools/gotestsum@v1.13.0
# A test that failed runs once more with nothing beside it, so that what a loaded machine did to its clock is told from
# a defect: it has to pass there, and the closing lines name it all the same. More than RETRIES failures of scenarios, or
# UNIT_RETRIES of other tests, are no such thing. Of the latter several run at once, of each of several packages, and
# where the machine is slow for a minute it is so for all of these: four failed in one run, and four scenarios in another.
RETRIES     ?= 6
UNIT_RETRIES ?= 10
UNIT_TESTS  := --format=standard-quiet --hide-summary=skipped --rerun-fails-max-failures=$(UNIT_RETRIES)
SCENARIO    := --format=standard-verbose --hide-summary=skipped,output --rerun-fails-max-failures=$(RETRIES)
# go test (format, packages, arguments), which says at its end which tests have failed, and why. Where a package failed
# and none of its tests did, there is no test that could run once more: that stays a failure.
define tests
( ended=0; events=$$(mktemp); trap 'rm "$$events"' EXIT; \
  $(GOTESTSUM) $(1) --packages="$(2)" --rerun-fails=1 --rerun-fails-run-root-test \
  --jsonfile="$$events" -- $(3) || ended=$$?; \
  untried=$$(comm -12 <(sed -n 's/.*"Action":"fail","Package":"\([^"]*\)","Elapsed".*/\1/p' "$$events" | sort -u) \
    <(sed -n 's/.*"Package":"\([^"]*\)","Output":"ok .*\[no tests to run\].*/\1/p' "$$events" | sort -u)); \
  [ -z "$$untried" ] || { echo "failed, though no test of it did: $$untried" >&2; ended=1; }; \
  awk -v most=12 -f $(CURDIR)/e2e/failures.awk "$$events"; \
  sed -n 's/.*"Output":"\(LEFT OUT .*\)\\n"}$$/\1/p' "$$events"; exit $$ended )
endef

# What users would miss most is tried first, for a slow machine leaves the last ones out. Scenarios with a lab of their
# own come last, for they remove the one that the others share.
FIRST       := connectivity discovery hostile faults
OWN_LAB     := cni globalnet release
OTHERS      := $(filter-out $(FIRST) $(OWN_LAB),$(notdir $(wildcard e2e/scenarios/*)))
SCENARIOS   ?= $(addprefix ./scenarios/,$(FIRST) $(OTHERS) $(OWN_LAB))
RUN         ?=
# The packages whose tests take longest begin first: one that begins last keeps all waiting.
LONGEST     := ./memberagent/node ./cmd/kubectl-karmada-sealane ./memberagent/cluster ./controllers .
LAB_TEST    ?= .lab-test
# make test is slow where it takes longer than this, in seconds, for all but what is in e2e; else it takes 800. There it
# would take longer than 90 minutes, and leaves out the longest scenarios and these packages of e2e.
SLOW_AFTER  ?= 1150
LONG_PACKAGES := e2e/vm e2e/release
# No package of scenarios begins later than this, in seconds after make test began. Where all runs that takes some 3,700
# to 4,100 to the end; a package took up to 1,000 s on a slow machine, and its failed tests 600 to be tried again.
LATEST      ?= 4100
BEGUN       := $(shell date +%s)

include e2e/lab.mk

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*##/ {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: prerequisites
prerequisites: # Name what is missing before anything is built.
	@missing=; for tool in git go; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -z "$$missing" ] || { echo "missing:$$missing; install them first (Debian: apt-get install git make; Go 1.25 or later from go.dev/dl)" >&2; exit 1; }; \
	[ "$$(id -u)" = 0 ] || { echo "this needs root: it makes network namespaces and runs kubelets; found uid $$(id -u)" >&2; exit 1; }

##@ Development

.PHONY: build
build: ## Build every binary into bin/.
	go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...
	@ln -sf kubectl-karmada-sealane bin/kubectl-sealane
	@ln -sf kubectl-karmada-sealane bin/karmadactl-sealane
	@install -m 755 cmd/kubectl-karmada-sealane/completion/kubectl_complete-karmada-sealane bin/

.PHONY: images
images: ## Build all images for amd64 and arm64 as OCI archives in dist/images (VERSION=v1.2.3 ARCH=amd64,arm64).
	go run -C e2e ./cmd/images --version=$(VERSION) --arch=$(or $(ARCH),amd64$(comma)arm64)

.PHONY: push
push: ## Push the images that make images built (REGISTRY=registry.example.org/sealane VERSION=v1.2.3).
	@test -n "$(REGISTRY)" || { echo "which registry? make push REGISTRY=registry.example.org/sealane VERSION=$(VERSION)" >&2; exit 1; }
	go run -C e2e ./cmd/images --version=$(VERSION) --push=$(REGISTRY)

.PHONY: release
release: ## Build all that a version is published as in dist/release (VERSION=v1.2.3 URL=https://...).
	@[ "$(origin VERSION)" != file ] || { echo "which version? make release VERSION=v1.2.3" >&2; exit 1; }
	go run -C e2e ./cmd/release --version=$(VERSION) --url=$(URL)

.PHONY: generate
generate: ## Regenerate deepcopy code, CRDs and the command reference.
	go tool controller-gen object crd paths=./api/... output:crd:dir=artifacts/crds
	go run ./cmd/kubectl-karmada-sealane docs >docs/cli.md.new && mv docs/cli.md.new docs/cli.md

.PHONY: lint
lint: ## Run golangci-lint, which is built first. What of it needs no download is part of verify.
	$(GOLANGCI) run ./...
	cd e2e && $(GOLANGCI) run ./...

.PHONY: verify
verify: ## Check formatting, go vet, modules, import directions, line length and generated files.
	@dirty=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$dirty" ] || { echo "run gofmt -w on" $$dirty >&2; exit 1; }
	go mod tidy -diff
	go -C e2e mod tidy -diff
	go vet ./...
	go -C e2e vet ./...
	go test -count=1 ./internal/conventions
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	git ls-files --cached --others --exclude-standard | while read -r file; do [ ! -e "$$file" ] || echo "$$file"; done | \
	  xargs cp --parents -t "$$tmp"; \
	GOFLAGS=-trimpath $(MAKE) --no-print-directory -C "$$tmp" generate >/dev/null; \
	for dir in api artifacts docs; do diff -rq "$$tmp/$$dir" $$dir || \
	  { echo "generated files are stale: run 'make generate' and commit the result" >&2; exit 1; }; done

##@ Tests

.PHONY: test
test: prerequisites verify test-project ## Check the tree, then run every test: unit, kernel, API server, end to end.
	@effort=usual; without=; took=$$(( $$(date +%s) - $(BEGUN) )); \
	[ $$took -le $(SLOW_AFTER) ] || { effort=brief; without="$(LONG_PACKAGES)"; \
	  echo "this machine is slow: $$took s so far, so the longest scenarios are left out, and of packages $(LONG_PACKAGES)"; }; \
	$(MAKE) --no-print-directory test-tools WITHOUT="$$without" && \
	$(MAKE) --no-print-directory test-e2e E2E_ARGS="-effort=$$effort -before=$$(( $(BEGUN) + $(LATEST) ))"

.PHONY: test-unit
test-unit: test-project test-tools ## Run all tests but the end-to-end scenarios.

.PHONY: test-project
test-project: prerequisites test-deps # Run the tests of what users run.
	go list -export -test ./... >/dev/null # compiles: nothing does beside tests that look at the clock
	$(call tests,$(UNIT_TESTS),$(LONGEST) ./...,-timeout 25m)

.PHONY: test-tools
test-tools: prerequisites test-deps # Run the tests of the lab, the release, the benchmarks and the virtual machines.
	cd e2e && packages=$$(go list ./... | grep -v /scenarios/ $(foreach p,$(WITHOUT),| grep -v /$(p)$$)) && \
	$(call tests,$(UNIT_TESTS),$$(echo $$packages),-timeout 15m)

# What needs an API server, a kernel's tables or traffic is not emulated, nor what a socket says of its packets: the
# emulator hands a number on and no more.
NATIVE      := (/(cmd/(kubectl-karmada-sealane|sealane-[a-z]+)|controllers(/services)?|dataplane/(kernel|nodestate|tracer)|internal/(dnszone|transitions)|lighthouse|memberagent/(cluster(/discovery)?|node)))?
.PHONY: test-arm64
test-arm64: prerequisites ## Run the unit tests that need no more than a processor on one of arm64, which is emulated (five minutes).
	@command -v qemu-aarch64 >/dev/null || apt-get install -y -q --no-install-recommends qemu-user
	GOARCH=arm64 go test -count=1 -exec qemu-aarch64 -skip '^TestAKnockSaysWhereItEnds$$' \
	  $$(go list ./... | grep -vxE "$$(go list -m)$(NATIVE)")

.PHONY: soak
soak: prerequisites ## Let gateways and cables die and return, and who has global addresses, 500 times at random (STEPS=500 SEED=5100), and try all cases of scenarios and a second kernel.
	go test -count=1 -timeout 240m -v -run 'TestGatewaysWalk|TestTranslationsWalk' ./memberagent/node \
	  -steps $(or $(STEPS),500) -translations $(or $(STEPS),500) -seed $(or $(SEED),5100)
	$(MAKE) test-e2e SCENARIOS="./scenarios/admin ./scenarios/discovery" E2E_ARGS=-effort=thorough \
	  RUN='^(TestExplainLiveNamesWhatIsBroken|TestManyServicesComeAndGo)$$'
	go test -C e2e -count=1 -timeout 150m -v ./vm -backports \
	  -run '^(TestTheNodeAgentUsesTheKernelsWireGuard|TestAmongModulesOfOthers|TestIPsecByTheKernel)$$'

.PHONY: test-e2e
test-e2e: prerequisites test-deps ## Run the end-to-end scenarios (SCENARIOS=./scenarios/faults RUN=TestName LAB_TEST=.lab-test).
	trap 'cd $(CURDIR) && $(LABCTL) down --quiet --name=$(abspath $(LAB_TEST))' EXIT; \
	cd e2e && $(call tests,$(SCENARIO),$(SCENARIOS),-count=1 -p 1 -shuffle=on -timeout 60m -parallel 8 -v -run '$(RUN)' \
	-args -keep -lab=$(abspath $(LAB_TEST)) $(E2E_ARGS))

.PHONY: bench
bench: prerequisites lab-deps ## Run the benchmarks; results go to docs/benchmarks.
	go run -C e2e ./cmd/bench
	$(MAKE) --no-print-directory fleet

.PHONY: bench-profile
bench-profile: prerequisites lab-deps ## Measure where the processors' time goes while a flow takes each path (perf), into docs/benchmarks/profile.md; what is kept of that is in docs/benchmarks/README.md.
	@command -v perf >/dev/null || apt-get install -y -q --no-install-recommends linux-perf
	go run -C e2e ./cmd/bench -parts cables,profile -out docs/benchmarks/profile.md

.PHONY: bench-failover
bench-failover: prerequisites lab-deps ## Measure what traffic sees while gateways fail; results go to docs/benchmarks/failover.md.
	go run -C e2e ./cmd/failover

.PHONY: bench-gateways
bench-gateways: prerequisites test-deps ## Measure what several gateways let through, each with the same share of a processor.
	go test -count=1 -timeout 30m -v -run '^TestThroughput$$' ./memberagent/node -args -throughput 5

.PHONY: bench-kernel
bench-kernel: prerequisites test-deps ## Measure cables by the kernel's WireGuard and ESP against the same wired by hand, in a virtual machine.
	go test -C e2e -count=1 -timeout 40m -v ./vm -run '^TestThroughputOfTheKernels(WireGuard|ESP)$$' -throughput 5

.PHONY: bench-globalnet
bench-globalnet: prerequisites test-deps ## Measure rounds of a gateway with 10,000 global addresses; results go to docs/benchmarks/globalnet.md.
	go test -run '^$$' -bench '^BenchmarkGlobalnet$$' -benchtime 30x ./dataplane/plan ./dataplane/kernel
	go test -count=1 -timeout 30m -v -run '^TestGlobalThroughput$$' ./memberagent/node -args -throughput 5

.PHONY: bench-agent
bench-agent: prerequisites test-deps ## Measure what imports cost the cluster agent, which takes ten minutes (SERVICES=10000).
	go run -C e2e ./cmd/agent --services=$(or $(SERVICES),10000)

.PHONY: bench-plan
bench-plan: prerequisites ## Measure rounds of a node of 1,000 with 250 remote clusters.
	go test -run '^$$' -bench '^BenchmarkNodes$$' -benchtime 100x -count 3 ./dataplane/plan ./dataplane/kernel

.PHONY: fleet
fleet: prerequisites lab-deps ## Measure what the broker costs by the size of the fleet (CLUSTERS=10,30,100 SERVICES=1000 AGENTS=2 CHURN=1m SILENCE=1m REPORTS=0 RUNS=1); RESULTS=docs/benchmarks/fleet.json has what earlier runs found.
	go run -C e2e ./cmd/fleet --clusters=$(or $(CLUSTERS),10$(comma)30$(comma)100) --services=$(or $(SERVICES),1000) \
		--agents=$(or $(AGENTS),2) --churn=$(or $(CHURN),1m) --silence=$(or $(SILENCE),1m) --reports=$(or $(REPORTS),0) \
		--results=$(abspath $(or $(RESULTS),docs/benchmarks/fleet.json)) --runs=$(or $(RUNS),1)

.PHONY: bench-nodes
bench-nodes: prerequisites test-deps ## Measure what agents cost by the number of nodes (NODES=10,100,1000); results go to docs/benchmarks/nodes.md.
	go run -C e2e ./cmd/nodes --nodes=$(or $(NODES),10$(comma)100$(comma)1000)

##@ Try it

.PHONY: demo
demo: prerequisites ## Boot Karmada with two members, install Sealane, export a service, show the answer.
	@go run -C e2e ./cmd/demo --name=$(abspath .lab-demo)
