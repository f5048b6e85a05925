# SPDX-License-Identifier: Apache-2.0
# The lab: a real Karmada with real members on this machine.

LAB      ?= .lab
TOPOLOGY ?=
IMAGE    ?=
INSTALL  ?= true

##@ Lab

.PHONY: lab-deps
lab-deps: # Install the packages and build the programs that labs need.
	@go run ./e2e/cmd/lab deps

.PHONY: test-deps
test-deps: # Install what the tests run, too.
	@go run ./e2e/cmd/lab deps --tests

.PHONY: lab-up
lab-up: prerequisites ## Boot a lab and install Sealane (LAB=.lab TOPOLOGY=file INSTALL=true).
	@go run ./e2e/cmd/lab up --name=$(LAB) --topology=$(TOPOLOGY) --install=$(INSTALL)

.PHONY: lab-down
lab-down: ## Remove a lab, whatever state it is in (LAB=.lab).
	@go run ./e2e/cmd/lab down --name=$(LAB)

.PHONY: lab-load
lab-load: ## Load an image archive into every node (LAB=.lab IMAGE=archive.tar).
	@test -n "$(IMAGE)" || { echo "which archive? make lab-load IMAGE=archive.tar" >&2; exit 1; }
	@go run ./e2e/cmd/lab load --name=$(LAB) $(IMAGE)
