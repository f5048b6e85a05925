# SPDX-License-Identifier: Apache-2.0
# The lab: a real Karmada with real members on this machine.

LAB      ?= .lab
LABCTL    = go run -C e2e ./cmd/lab
TOPOLOGY ?=
IMAGE    ?=
INSTALL  ?= true

##@ Lab

.PHONY: lab-deps
lab-deps: # Install the packages and build the programs that labs need.
	@$(LABCTL) deps

.PHONY: test-deps
test-deps: # Install what the tests run, too.
	@$(LABCTL) deps --tests

.PHONY: lab-up
lab-up: prerequisites ## Boot a lab and install Sealane (LAB=.lab TOPOLOGY=file INSTALL=true).
	@$(LABCTL) up --name=$(abspath $(LAB)) --topology=$(abspath $(TOPOLOGY)) --install=$(INSTALL)

.PHONY: lab-down
lab-down: ## Remove a lab, whatever state it is in (LAB=.lab).
	@$(LABCTL) down --name=$(abspath $(LAB))

.PHONY: lab-load
lab-load: ## Load an image archive into every node (LAB=.lab IMAGE=archive.tar).
	@test -n "$(IMAGE)" || { echo "which archive? make lab-load IMAGE=archive.tar" >&2; exit 1; }
	@$(LABCTL) load --name=$(abspath $(LAB)) $(abspath $(IMAGE))
