package main

import (
	"context"
	"errors"
	"os"
	"time"

	apiv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/operator-framework/operator-lib/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionVariable is the variable in which OLM names the OperatorCondition that the operator may write. Other installers do not set it
// (https://olm.operatorframework.io/docs/advanced-tasks/communicating-operator-conditions-to-olm/).
const conditionVariable = "OPERATOR_CONDITION_NAME"

// conditionTimeout bounds one update of the OperatorCondition.
const conditionTimeout = 10 * time.Second

// whileNotUpgradeable runs work while OLM must not replace this version by another one: only the version that has begun a migration or a
// restore can finish it. A failure to write the OperatorCondition is logged and does not prevent the work.
func whileNotUpgradeable(ctx context.Context, reason, message string, work func() error) error {
	if os.Getenv(conditionVariable) == "" {
		return work()
	}
	condition, err := upgradeableCondition()
	if err != nil {
		ctrl.Log.Error(err, "The operator cannot report to OLM whether it may be upgraded")
		return work()
	}
	setUpgradeable := func(status metav1.ConditionStatus, reason, message string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), conditionTimeout) // also during shutdown
		defer cancel()
		// OLM writes the object, too.
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			return condition.Set(ctx, status, conditions.WithReason(reason), conditions.WithMessage(message))
		})
		if err != nil {
			ctrl.Log.Error(err, "Reporting to OLM whether the operator may be upgraded", "upgradeable", status)
		}
	}
	setUpgradeable(metav1.ConditionFalse, reason, message)
	if err := work(); err != nil {
		// Another version may solve the problem.
		setUpgradeable(metav1.ConditionTrue, "StoreNotOpened", err.Error())
		return err
	}
	setUpgradeable(metav1.ConditionTrue, "StoreReady", "the store is open, with the tables of this version")
	return nil
}

// upgradeableCondition returns the condition Upgradeable of this operator's OperatorCondition.
func upgradeableCondition() (conditions.Condition, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	scheme := newScheme()
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err := errors.Join(err, apiv2.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return conditions.InClusterFactory{Client: direct}.NewCondition(apiv2.ConditionType(apiv2.Upgradeable))
}
