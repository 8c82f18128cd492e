//! The attribute of all asynchronous operations of the store.

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, FnArg, ItemFn, Lifetime, ParenthesizedGenericArguments, Receiver, ReceiverKind, ReturnType,
    TypeReference, parse_macro_input, parse_quote,
};

/// Makes an `async fn` an operation: it has a span of its own name, with the fields that the attribute names, in which a
/// failure is noted at DEBUG; how long it took is counted; that somebody drops it while it waits is noticed; and it returns a boxed future.
///
/// The box has its body compiled once, in its own crate. Without, each program that calls an operation compiles its
/// body again, with all that it calls of the database driver, which was most of the time of a build. Beside an answer of the
/// database, an allocation costs nothing.
///
/// ```text
/// #[operation(task = %run.task)]
/// pub async fn start_task(&self, run: &Run) -> Result<Started, StoreError> { .. }
/// ```
///
/// All references that it is given live as long as its future. It has no generic parameters: a body that has is compiled where
/// it is called, whatever it returns.
#[proc_macro_attribute]
pub fn operation(fields: TokenStream, function: TokenStream) -> TokenStream {
    let function = parse_macro_input!(function as ItemFn);
    boxed(&Tokens::from(fields), function).unwrap_or_else(Error::into_compile_error).into()
}

fn boxed(fields: &Tokens, function: ItemFn) -> Result<Tokens, Error> {
    let ItemFn { attrs, vis, mut sig, block, .. } = function;
    if sig.asyncness.take().is_none() {
        return Err(Error::new_spanned(sig.fn_token, "an operation is an async fn"));
    }
    if sig.generics.type_params().next().is_some() {
        return Err(Error::new_spanned(&sig.generics, "an operation has no generic parameters"));
    }
    for input in &mut sig.inputs {
        match input {
            FnArg::Receiver(receiver) => LongLived.visit_receiver_mut(receiver),
            FnArg::Typed(argument) => LongLived.visit_type_mut(&mut argument.ty),
        }
    }
    let mut output = match sig.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, output) => *output,
    };
    LongLived.visit_type_mut(&mut output);
    sig.generics.params.insert(0, parse_quote!('op));
    sig.output = parse_quote!(-> ::futures::future::BoxFuture<'op, #output>);
    let failure = is_result(&output).then(|| quote!(err(level = "debug")));
    let failed = if is_result(&output) { quote!(output.is_err()) } else { quote!(false) };
    let name = sig.ident.to_string();
    let fields = if fields.is_empty() { quote!() } else { quote!(fields(#fields),) };
    let statements = block.stmts;
    Ok(quote! {
        #(#attrs)*
        #[::tracing::instrument(skip_all, #fields #failure)]
        #vis #sig {
            Box::pin(async move {
                let work = ::core::pin::pin!(async move {
                // Tells what is returned before the body does.
                if false {
                    return ::core::future::pending::<#output>().await;
                }
                #(#statements)*
                });
                let begun = ::std::time::Instant::now();
                let output = crate::store::Attended::new(work).await;
                ::disbatch_metrics::operated(::disbatch_metrics::Operation { name: #name, failed: #failed }, begun.elapsed());
                output
            })
        }
    })
}

fn is_result(output: &syn::Type) -> bool {
    match output {
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Result"),
        _ => false,
    }
}

/// Gives what has no named lifetime that of the future.
struct LongLived;

impl VisitMut for LongLived {
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        reference.lifetime.get_or_insert_with(|| Lifetime::new("'op", Span::call_site()));
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_receiver_mut(&mut self, receiver: &mut Receiver) {
        if let ReceiverKind::Reference(_, lifetime, _) = &mut receiver.kind {
            lifetime.get_or_insert_with(|| Lifetime::new("'op", Span::call_site()));
        }
    }

    /// What a closure is given lives as long as its caller likes.
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = Lifetime::new("'op", lifetime.span());
        }
    }
}
