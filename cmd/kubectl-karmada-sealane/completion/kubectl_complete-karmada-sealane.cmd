@rem SPDX-License-Identifier: Apache-2.0
@kubectl-karmada-sealane __complete %*
